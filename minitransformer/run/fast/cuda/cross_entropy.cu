// Cross-entropy. core/ops/cross_entropy.py has the derivation; of one row, with s = logits - largest and smoothing eps,
//
//     loss = log total - (1 - eps) s_wanted - eps mean(s)      where total = sum_j exp(s_j)
//     dlogits_j = (exp(s_j) / total - target_j) * factor       where factor = dloss / N
//
// A warp takes a row. Forward makes the softmax "online" as in attention.cu, in one walk along the row: a lane keeps the
// largest logit that it met and the total as if that were the largest of all; at the end the lanes put theirs together.
// (Smoothing needs a second walk.) Kept for backward are two numbers of each row; the probabilities are made again.
//
// A row whose wanted token is ignore_index gives 0. One that does not exist gives NaN: a GPU cannot raise an error, and
// reading beyond the row would be worse.

#include "common.cuh"

template <typename T>
__global__ void cross_entropy_forward(const T* logits, const long long* targets, float* losses, float* largest_of,
                                      float* log_total_of, long long n_rows, long long n_classes,
                                      long long ignore_index, float smoothing) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n_rows) return;
    logits += row * n_classes;

    float largest = LOWEST, total = 0.0f;
    for (long long j = threadIdx.x; j < n_classes; j += WARP) {
        const float logit = wide(logits[j]);
        if (logit > largest) {
            total *= expf(largest - logit);
            largest = logit;
        }
        total += expf(logit - largest);
    }
    float largest_of_all = largest;
    for (int bit = WARP / 2; bit > 0; bit /= 2)
        largest_of_all = fmaxf(largest_of_all, __shfl_xor_sync(ALL, largest_of_all, bit));
    total = sum_over(WARP, total * expf(largest - largest_of_all));
    const float log_total = logf(total);

    float s_sum = 0.0f;
    if (smoothing > 0.0f)
        for (long long j = threadIdx.x; j < n_classes; j += WARP) s_sum += wide(logits[j]) - largest_of_all;
    s_sum = sum_over(WARP, s_sum);

    if (threadIdx.x != 0) return;
    const long long wanted = targets[row];
    float loss = 0.0f;
    if (wanted != ignore_index) {
        const bool exists = 0 <= wanted && wanted < n_classes;
        const float s_wanted = exists ? wide(logits[wanted]) - largest_of_all : NOT_A_NUMBER;
        loss = log_total - (1.0f - smoothing) * s_wanted;
        if (smoothing > 0.0f) loss -= smoothing * s_sum / n_classes;
    }
    losses[row] = loss;
    largest_of[row] = largest_of_all;
    log_total_of[row] = log_total;
}

template <typename T>
__global__ void cross_entropy_backward(const T* logits, const long long* targets, const float* largest_of,
                                       const float* log_total_of, const float* factor, T* dlogits, long long n_rows,
                                       long long n_classes, long long ignore_index, float smoothing) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n_rows) return;
    logits += row * n_classes;
    dlogits += row * n_classes;
    const long long wanted = targets[row];
    const float largest = largest_of[row], log_total = log_total_of[row];
    const float share = smoothing / n_classes;
    for (long long j = threadIdx.x; j < n_classes; j += WARP) {
        float dlogit = 0.0f;
        if (wanted != ignore_index) {
            const float p = expf(wide(logits[j]) - largest - log_total);
            const float target = (j == wanted ? 1.0f - smoothing : 0.0f) + share;
            dlogit = (p - target) * *factor;
        }
        store(&dlogits[j], dlogit);
    }
}
