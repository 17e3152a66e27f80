// Dropout. core/ops/dropout.py has the derivation:
//
//     y_i = x_i * m_i / (1 - rate),      dx_i = dy_i * m_i / (1 - rate)      where m_i is 0 with probability rate
//
// Both ways are this one kernel. Nothing is kept: m is made again from the seed. A thread takes one number.

#include "common.cuh"

template <typename T>
__global__ void dropout_either_way(const T* x, T* y, float rate, unsigned long long seed, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    store(&y[i], uniform(seed, i) >= rate ? wide(x[i]) / (1.0f - rate) : 0.0f);
}
