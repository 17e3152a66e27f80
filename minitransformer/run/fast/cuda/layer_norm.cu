// LayerNorm. core/ops/normalization.py has the derivation; n is the normalized row, s = 1 / sqrt(variance + eps):
//
//     y = gamma * n + beta,      dx = s * (dn - mean(dn) - n * mean(dn * n))  with dn = gamma * dy
//     dgamma = sum over the rows of dy * n,      dbeta = sum over the rows of dy
//
// A warp takes a row: its lanes stand next to each other along the row, so that 32 neighbouring numbers are read at
// once, and they share each sum. Kept for backward are the mean and s of each row; n is made again from x.

#include "common.cuh"

template <typename T>
__global__ void layer_norm_forward(const T* x, const T* gamma, const T* beta, T* y, float* means, float* inverse_stds,
                                   long long n_rows, long long width, float eps) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n_rows) return;  // a whole warp leaves, so no lane waits in vain for another
    x += row * width;
    y += row * width;

    float sum = 0.0f;
    for (long long i = threadIdx.x; i < width; i += WARP) sum += wide(x[i]);
    const float mean = sum_over(WARP, sum) / width;

    float squares = 0.0f;
    for (long long i = threadIdx.x; i < width; i += WARP) {
        const float centered = wide(x[i]) - mean;
        squares += centered * centered;
    }
    const float inverse_std = 1.0f / sqrtf(sum_over(WARP, squares) / width + eps);

    for (long long i = threadIdx.x; i < width; i += WARP) {
        const float n = (wide(x[i]) - mean) * inverse_std;
        store(&y[i], n * wide(gamma[i]) + wide(beta[i]));
    }
    if (threadIdx.x == 0) {
        means[row] = mean;
        inverse_stds[row] = inverse_std;
    }
}

template <typename T>
__global__ void layer_norm_backward(const T* x, const T* gamma, const float* means, const float* inverse_stds,
                                    const T* dy, T* dx, long long n_rows, long long width) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n_rows) return;
    const float mean = means[row], inverse_std = inverse_stds[row];
    x += row * width;
    dy += row * width;
    dx += row * width;

    float dn_sum = 0.0f, dn_n_sum = 0.0f;
    for (long long i = threadIdx.x; i < width; i += WARP) {
        const float n = (wide(x[i]) - mean) * inverse_std;
        const float dn = __fmul_rn(wide(dy[i]), wide(gamma[i]));
        dn_sum += dn;
        dn_n_sum += dn * n;
    }
    const float shift = sum_over(WARP, dn_sum) / width;
    const float stretch = sum_over(WARP, dn_n_sum) / width;

    for (long long i = threadIdx.x; i < width; i += WARP) {
        const float n = (wide(x[i]) - mean) * inverse_std;
        const float dn = __fmul_rn(wide(dy[i]), wide(gamma[i]));
        store(&dx[i], inverse_std * (dn - shift - n * stretch));
    }
}

// dgamma and dbeta are sums down the columns. A block takes 32 columns of one strip of rows, and its warps take turns
// with the rows of the strip; sums[0] and sums[1], each (strips, width), receive what the strips add to dgamma and
// dbeta. Who adds what to what is fixed, so the result is the same each time.
template <typename T>
__global__ void layer_norm_backward_parameters(const T* x, const float* means, const float* inverse_stds, const T* dy,
                                               float* sums, long long n_rows, long long width, long long strip) {
    constexpr int WARPS = 8;
    __shared__ float dgammas[WARPS][WARP], dbetas[WARPS][WARP];
    const long long column = (long long)blockIdx.x * WARP + threadIdx.x;
    const long long end = min((blockIdx.y + 1) * strip, n_rows);

    float dgamma = 0.0f, dbeta = 0.0f;
    if (column < width) {
        for (long long row = blockIdx.y * strip + threadIdx.y; row < end; row += WARPS) {
            const float dout = wide(dy[row * width + column]);
            dgamma += dout * (wide(x[row * width + column]) - means[row]) * inverse_stds[row];
            dbeta += dout;
        }
    }
    dgammas[threadIdx.y][threadIdx.x] = dgamma;
    dbetas[threadIdx.y][threadIdx.x] = dbeta;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
    for (int warp = 1; warp < WARPS; warp++) {
        dgamma += dgammas[warp][threadIdx.x];
        dbeta += dbetas[warp][threadIdx.x];
    }
    sums[blockIdx.y * width + column] = dgamma;
    sums[(gridDim.y + blockIdx.y) * width + column] = dbeta;
}
