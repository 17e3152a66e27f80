// Attention in tiles. core/ops/attention.py has the derivation; for one query, with scores_j = scale * q . k_j,
//
//     weights_j = exp(scores_j - largest) / total,      output = sum_j weights_j v_j
//
// The scores are never stored. Forward goes along the keys once, tile by tile, with the softmax made "online" (Milakov
// and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention", algorithm 1): it
// keeps the largest score so far, and total and output as if that were the largest of all. When a larger one comes, both
// are multiplied by
//
//     correction = exp(largest before - largest now)
//
// Backward makes the weights again from q, k and the two numbers kept of each query, largest and 1 / total. With
// along = sum_l dweights_l weights_l = doutput . output (a sum over d_v instead of T_k terms; Dao et al., section 3.1),
//
//     dscores_j = weights_j (dweights_j - along)      where dweights_j = doutput . v_j
//     dq   = scale * sum_j dscores_j k_j              each query collects over the keys:  attention_backward_queries
//     dk_j = scale * sum_i dscores_ij q_i             each key collects over the queries: attention_backward_keys
//     dv_j = sum_i weights_ij doutput_i
//
// Every kernel has the same plan. A row, of q or of k, belongs to LANES neighbouring threads, each with a slice of 32
// numbers of it in registers, and of what it collects. The rows of the other side come by in tiles in shared memory,
// where every thread of the block reads them. Each sum is collected by one thread in a fixed order, so results are the
// same each time. LANES is 1, 2 or 4, for rows of up to 32, 64 or 128 numbers; shorter rows are filled up with zeros.
//
// Arrays lie as (batch, T, heads, width) in memory, which is how they come out of the linear maps; what is kept of each
// query lies as (batch, heads, T_q). Dropout: see Dropped.

#include "common.cuh"

constexpr int THREADS = 128;   // of a block
constexpr int SLICE = 32;      // numbers of a row that one thread holds
constexpr int TILE = 16;       // rows that come by at a time
constexpr int PADDED = SLICE + 4;  // so that the slices of LANES threads lie in different banks of the memory

// Where a row begins, in an array (batch, length, heads, width).
template <typename T>
__device__ T* row_of(T* x, long long row, long long length, long long heads, long long width) {
    const long long batch = blockIdx.x / heads, head = blockIdx.x % heads;
    return x + ((batch * length + row) * heads + head) * width;
}

// A thread's slice of a row, with zeros beyond the width; all zeros where there is no such row.
template <typename T>
__device__ void load_slice(float* slice, const T* row, int lane, long long width, bool exists) {
#pragma unroll
    for (int c = 0; c < SLICE; c++) {
        const int i = lane * SLICE + c;
        slice[c] = exists && i < width ? wide(row[i]) : 0.0f;
    }
}

template <typename T>
__device__ void store_slice(T* row, const float* slice, float factor, int lane, long long width) {
#pragma unroll
    for (int c = 0; c < SLICE; c++) {
        const int i = lane * SLICE + c;
        if (i < width) store(&row[i], slice[c] * factor);
    }
}

// TILE rows from `start` on, loaded by all threads together, with zeros beyond the last row and beyond the width.
template <typename T, int LANES>
__device__ void load_tile(float (*tile)[LANES][PADDED], const T* x, long long start, long long length, long long heads,
                          long long width) {
    for (int n = threadIdx.x; n < TILE * LANES * SLICE; n += THREADS) {
        const int r = n / (LANES * SLICE), i = n % (LANES * SLICE);
        const bool exists = start + r < length && i < width;
        tile[r][i / SLICE][i % SLICE] = exists ? wide(row_of(x, start + r, length, heads, width)[i]) : 0.0f;
    }
}

// The product of two rows, each held in slices; all threads of a row get it.
template <int LANES>
__device__ float dot(const float* a, const float* b) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < SLICE; c++) sum += a[c] * b[c];
    return sum_over(LANES, sum);
}

__device__ __forceinline__ void add_scaled(float* collected, float factor, const float* slice) {
#pragma unroll
    for (int c = 0; c < SLICE; c++) collected[c] += factor * slice[c];
}

// Which query may look at which key. `mask` is null where there is none; its strides are 0 along axes that it shares.
struct Seen {
    const bool* mask;
    long long query_stride, key_stride, t_q, t_k;
    bool causal;

    __device__ Seen(const bool* masks, long long batch_stride, long long head_stride, long long query_stride,
                    long long key_stride, long long heads, long long t_q, long long t_k, bool causal)
        : mask(masks), query_stride(query_stride), key_stride(key_stride), t_q(t_q), t_k(t_k), causal(causal) {
        if (mask) mask += blockIdx.x / heads * batch_stride + blockIdx.x % heads * head_stride;
    }

    __device__ bool operator()(long long query, long long key) const {
        if (query >= t_q || key >= t_k) return false;
        if (causal && key > query + t_k - t_q) return false;  // the queries are the last t_q of the t_k positions
        return !mask || mask[query * query_stride + key * key_stride];
    }
};

// What dropout leaves of the weights: a weight times 0, or times 1 / (1 - rate). The random numbers are not stored but
// made again, from the seed and the place of the weight.
struct Dropped {
    float rate, raised;
    unsigned long long seed;
    long long t_q, t_k;

    __device__ float operator()(long long query, long long key) const {
        if (rate == 0.0f) return 1.0f;
        return uniform(seed, (blockIdx.x * t_q + query) * t_k + key) >= rate ? raised : 0.0f;
    }
};

#define SHAPES long long heads, long long t_q, long long t_k, long long d_k, long long d_v
#define OPTIONS                                                                                            \
    const bool *mask, long long mask_batch, long long mask_head, long long mask_query, long long mask_key, \
        long long causal, float scale, float rate, unsigned long long seed
#define SEEN Seen(mask, mask_batch, mask_head, mask_query, mask_key, heads, t_q, t_k, causal)
#define DROPPED Dropped{rate, 1.0f / (1.0f - rate), seed, t_q, t_k}

// blockIdx.x: which batch and head; blockIdx.y: which THREADS / LANES queries.
template <typename T, int LANES>
__global__ void __launch_bounds__(THREADS) attention_forward(const T* q, const T* k, const T* v, T* output,
                                                             float* largest_of, float* inverse_of, SHAPES, OPTIONS) {
    __shared__ __align__(16) float keys[TILE][LANES][PADDED], values[TILE][LANES][PADDED];
    const int lane = threadIdx.x % LANES;
    const long long first = (long long)blockIdx.y * (THREADS / LANES), query = first + threadIdx.x / LANES;
    const Seen seen = SEEN;
    const Dropped dropped = DROPPED;

    float q_slice[SLICE], collected[SLICE] = {};
    load_slice(q_slice, row_of(q, query, t_q, heads, d_k), lane, d_k, query < t_q);
    float largest = LOWEST, total = 0.0f;

    // Where attention is causal, the last query of the block sees the most keys.
    const long long end = causal ? min(t_k, first + THREADS / LANES + t_k - t_q) : t_k;
    for (long long start = 0; start < end; start += TILE) {
        __syncthreads();  // until all are done with the tile before
        load_tile<T, LANES>(keys, k, start, t_k, heads, d_k);
        load_tile<T, LANES>(values, v, start, t_k, heads, d_v);
        __syncthreads();

        float scores[TILE], before = largest;
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            const float score = scale * dot<LANES>(q_slice, keys[j][lane]);
            scores[j] = seen(query, start + j) ? score : -INFINITE;
            largest = fmaxf(largest, scores[j]);
        }
        const float correction = expf(before - largest);
        total *= correction;
#pragma unroll
        for (int c = 0; c < SLICE; c++) collected[c] *= correction;
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            const float weight = expf(scores[j] - largest);
            total += weight;
            add_scaled(collected, weight * dropped(query, start + j), values[j][lane]);
        }
    }
    if (query >= t_q) return;
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;  // a query that sees nothing gets zeros
    store_slice(row_of(output, query, t_q, heads, d_v), collected, inverse, lane, d_v);
    if (lane == 0) {
        largest_of[blockIdx.x * t_q + query] = largest;
        inverse_of[blockIdx.x * t_q + query] = inverse;
    }
}

// dq, and `along` of each query, which attention_backward_keys reads. Blocks as in forward.
template <typename T, int LANES>
__global__ void __launch_bounds__(THREADS) attention_backward_queries(const T* q, const T* k, const T* v,
                                                                      const T* output, const float* largest_of,
                                                                      const float* inverse_of, const T* doutput, T* dq,
                                                                      float* along_of, SHAPES, OPTIONS) {
    __shared__ __align__(16) float keys[TILE][LANES][PADDED], values[TILE][LANES][PADDED];
    const int lane = threadIdx.x % LANES;
    const long long first = (long long)blockIdx.y * (THREADS / LANES), query = first + threadIdx.x / LANES;
    const Seen seen = SEEN;
    const Dropped dropped = DROPPED;

    float q_slice[SLICE], dout[SLICE], collected[SLICE];
    load_slice(q_slice, row_of(q, query, t_q, heads, d_k), lane, d_k, query < t_q);
    load_slice(dout, row_of(doutput, query, t_q, heads, d_v), lane, d_v, query < t_q);
    load_slice(collected, row_of(output, query, t_q, heads, d_v), lane, d_v, query < t_q);
    const float along = dot<LANES>(dout, collected);
    const float largest = query < t_q ? largest_of[blockIdx.x * t_q + query] : 0.0f;
    const float inverse = query < t_q ? inverse_of[blockIdx.x * t_q + query] : 0.0f;
    if (query < t_q && lane == 0) along_of[blockIdx.x * t_q + query] = along;
#pragma unroll
    for (int c = 0; c < SLICE; c++) collected[c] = 0.0f;

    const long long end = causal ? min(t_k, first + THREADS / LANES + t_k - t_q) : t_k;
    for (long long start = 0; start < end; start += TILE) {
        __syncthreads();
        load_tile<T, LANES>(keys, k, start, t_k, heads, d_k);
        load_tile<T, LANES>(values, v, start, t_k, heads, d_v);
        __syncthreads();
        for (int j = 0; j < TILE; j++) {
            const float score = scale * dot<LANES>(q_slice, keys[j][lane]);
            const float weight = seen(query, start + j) ? expf(score - largest) * inverse : 0.0f;
            const float dweight = dot<LANES>(dout, values[j][lane]) * dropped(query, start + j);
            add_scaled(collected, weight * (dweight - along), keys[j][lane]);
        }
    }
    if (query < t_q) store_slice(row_of(dq, query, t_q, heads, d_k), collected, scale, lane, d_k);
}

// dk and dv. blockIdx.y: which THREADS / LANES keys.
template <typename T, int LANES>
__global__ void __launch_bounds__(THREADS) attention_backward_keys(const T* q, const T* k, const T* v,
                                                                   const float* largest_of, const float* inverse_of,
                                                                   const float* along_of, const T* doutput, T* dk,
                                                                   T* dv, SHAPES, OPTIONS) {
    __shared__ __align__(16) float queries[TILE][LANES][PADDED], douts[TILE][LANES][PADDED];
    const int lane = threadIdx.x % LANES;
    const long long first = (long long)blockIdx.y * (THREADS / LANES), key = first + threadIdx.x / LANES;
    const Seen seen = SEEN;
    const Dropped dropped = DROPPED;

    float k_slice[SLICE], v_slice[SLICE], dk_slice[SLICE] = {}, dv_slice[SLICE] = {};
    load_slice(k_slice, row_of(k, key, t_k, heads, d_k), lane, d_k, key < t_k);
    load_slice(v_slice, row_of(v, key, t_k, heads, d_v), lane, d_v, key < t_k);

    // Where attention is causal, the first key of the block is seen by the most queries.
    const long long begin = causal ? max(0ll, first - (t_k - t_q)) : 0;
    for (long long start = begin; start < t_q; start += TILE) {
        __syncthreads();
        load_tile<T, LANES>(queries, q, start, t_q, heads, d_k);
        load_tile<T, LANES>(douts, doutput, start, t_q, heads, d_v);
        __syncthreads();
        for (int i = 0; i < TILE; i++) {
            const long long query = start + i, kept = blockIdx.x * t_q + min(query, t_q - 1);
            const float score = scale * dot<LANES>(queries[i][lane], k_slice);
            const float weight = seen(query, key) ? expf(score - largest_of[kept]) * inverse_of[kept] : 0.0f;
            const float remaining = dropped(query, key);
            const float dweight = dot<LANES>(douts[i][lane], v_slice) * remaining;
            add_scaled(dv_slice, weight * remaining, douts[i][lane]);
            add_scaled(dk_slice, weight * (dweight - along_of[kept]), queries[i][lane]);
        }
    }
    if (key >= t_k) return;
    store_slice(row_of(dk, key, t_k, heads, d_k), dk_slice, scale, lane, d_k);
    store_slice(row_of(dv, key, t_k, heads, d_v), dv_slice, 1.0f, lane, d_v);
}
