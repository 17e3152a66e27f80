// The gradient of a linear map's bias, db = sum over the rows of dy. The products are cuBLAS's.
//
// A block takes 32 columns of one strip of rows; its warps take turns with the rows of the strip. sums, (strips, width),
// receives what each strip adds. Who adds what to what is fixed, so the result is the same each time.

#include "common.cuh"

template <typename T>
__global__ void column_sums(const T* dy, float* sums, long long n_rows, long long width, long long strip) {
    constexpr int WARPS = 8;
    __shared__ float of_warps[WARPS][WARP];
    const long long column = (long long)blockIdx.x * WARP + threadIdx.x;
    const long long end = min((blockIdx.y + 1) * strip, n_rows);

    float sum = 0.0f;
    if (column < width)
        for (long long row = blockIdx.y * strip + threadIdx.y; row < end; row += WARPS)
            sum += wide(dy[row * width + column]);
    of_warps[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
    for (int warp = 1; warp < WARPS; warp++) sum += of_warps[warp][threadIdx.x];
    sums[blockIdx.y * width + column] = sum;
}
