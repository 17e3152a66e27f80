// GELU, exact or by the hyperbolic tangent. core/ops/activations.py has the formulas:
//
//     y = x Phi(x),      dx = dy (Phi(x) + x phi(x))  with phi = Phi'
//
// A thread takes one number. Forward keeps nothing: backward makes Phi and phi again from x.

#include "common.cuh"

// Phi(x), the normal distribution's cumulative function, and its density phi(x); or what stands for them with TANH.
template <bool TANH>
__device__ void cumulative_and_density(float x, float& cumulative, float& density) {
    if (TANH) {
        const float root = 0.7978845608028654f;            // sqrt(2 / pi)
        const float near = fminf(fmaxf(x, -10.0f), 10.0f);  // beyond, Phi is 0 or 1, and exp could overflow
        const float square = near * near;
        const float e = expf(-2.0f * root * near * (1.0f + 0.044715f * square));
        cumulative = 1.0f / (1.0f + e);  // not 1 + tanh: that too loses the digits of a small Phi
        density = 2.0f * (e * cumulative) * cumulative * root * (1.0f + 3.0f * 0.044715f * square);
    } else {
        cumulative = 0.5f * erfcf(-0.7071067811865476f * x);  // not 1 + erf: that loses the digits of a small Phi
        density = 0.3989422804014327f * expf(-0.5f * x * x);
    }
}

template <typename T, bool TANH>
__global__ void gelu_forward(const T* x, T* y, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float cumulative, density;
    cumulative_and_density<TANH>(wide(x[i]), cumulative, density);
    store(&y[i], wide(x[i]) * cumulative);
}

template <typename T, bool TANH>
__global__ void gelu_backward(const T* x, const T* dy, T* dx, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float cumulative, density;
    cumulative_and_density<TANH>(wide(x[i]), cumulative, density);
    store(&dx[i], wide(dy[i]) * (cumulative + wide(x[i]) * density));
}
