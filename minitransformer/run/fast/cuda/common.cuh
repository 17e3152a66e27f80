// What the kernels share: the types of numbers, random numbers, and sums over the threads of a warp.
//
// Arrays hold numbers of type T, float or __half (float16). Every sum and every function is computed in float.

#include <cuda_fp16.h>

#define WARP 32                  // the threads that a GPU runs in step, called its lanes
#define ALL 0xffffffffu          // all lanes of a warp take part
#define LOWEST -3.402823466e38f  // the lowest number, where a search for the largest one starts

// The compiler in use on a GPU has no names for these two; here are their bits.
#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(__half x) { return __half2float(x); }

// Store x, rounded to the type of the array.
__device__ __forceinline__ void store(float* place, float x) { *place = x; }
__device__ __forceinline__ void store(__half* place, float x) { *place = __float2half(x); }

// The random number in [0, 1) at a place, by the formula of `uniform` in core/ops/random_numbers.py: two places share one
// hash of 64 bits, and 24 of each half count.
__device__ __forceinline__ float uniform(unsigned long long seed, unsigned long long place) {
    unsigned long long z = (place / 2 + 1) * 0x9E3779B97F4A7C15ull + seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    const unsigned int half = (unsigned int)(place % 2 ? z >> 32 : z);
    return (float)(half >> 8) * 5.9604644775390625e-8f;  // 2^-24
}

// The sum over `lanes` neighbouring lanes (a power of two), which every one of them gets. Lanes whose numbers differ in
// one bit exchange what they have, bit by bit.
__device__ __forceinline__ float sum_over(int lanes, float x) {
    for (int bit = lanes / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(ALL, x, bit);
    return x;
}
