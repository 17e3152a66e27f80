// Adam and AdamW. core/training/optimizers.py has the formulas; a thread takes one parameter, and reads and writes each of its
// numbers once:
//
//     value = value * shrink                      shrink = 1 - rate * weight_decay, or 1 where nothing decays
//     m = beta1 m + (1 - beta1) g
//     v = beta2 v + (1 - beta2) g * g
//     value = value - rate * (m / bracket1) / (sqrt(v / bracket2) + eps)      bracket = 1 - beta^step
//
// T is the type of the gradient alone: the values, and what is remembered of each, are float.

#include "common.cuh"

template <typename T>
__global__ void adam_step(float* values, const T* gradients, float* means, float* squares, long long n, float rate,
                          float beta1, float beta2, float rest1, float rest2, float bracket1, float bracket2, float eps,
                          float shrink) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float g = wide(gradients[i]);
    const float m = beta1 * means[i] + rest1 * g;
    const float v = beta2 * squares[i] + rest2 * (g * g);
    means[i] = m;
    squares[i] = v;
    values[i] = values[i] * shrink - rate * (m / bracket1) / (sqrtf(v / bracket2) + eps);
}
