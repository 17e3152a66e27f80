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
// Every kernel has the same plan. A block takes a tile of rows, of q or of k, into shared memory. Tiles of the other side
// come by one after the other. With each, the block makes two kinds of products of small matrices:
//
//     multiply_rows    scores = scale queries keys^T, a row of one tile with a row of the other; dweights likewise
//     multiply_add     collected += weights values; in backward also dscores keys, and so on
//
// A thread computes a small rectangle of a product, in registers. With 4 rows of one tile and 4 of the other it makes
// 16 products of 8 numbers read; even shared memory is slow compared with arithmetic. The weights go through shared
// memory from the threads that compute them to those that need them. Each sum is collected by one thread in a fixed
// order, so results are the same each time. WIDTH is 32, 64 or 128; shorter rows are filled up with zeros.
//
// Arrays lie as (batch, T, heads, width) in memory, which is how they come out of the linear maps; what is kept of each
// query lies as (batch, heads, T_q).

#include "common.cuh"

constexpr int SIDE = 8;               // the threads of a block stand in a square
constexpr int THREADS = SIDE * SIDE;  // of a block
constexpr int BLOCKS = 5;             // of a multiprocessor at a time, as far as registers go
constexpr int PAD = 4;                // numbers between two rows in shared memory, so that they lie in different banks

template <int WIDTH>
constexpr int TILE = WIDTH == 128 ? 16 : 32;  // rows of a tile, so that all tiles of a block take less than 48 KB

// A loop that the compiler writes out, so that the arrays it goes through stay in registers.
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; i++)

// The rows and columns of a tile that a thread takes: every SIDE-th, from its place in the square on. Lanes that differ
// in the lowest bit share columns, lanes that differ in the next three bits share rows. So neighbouring lanes read the
// same numbers, and shared memory serves half a warp at once. Only threads of one warp share rows.
__device__ __forceinline__ int row(int r) { return threadIdx.x % 2 + threadIdx.x / 16 * 2 + r * SIDE; }
__device__ __forceinline__ int column(int c) { return threadIdx.x / 2 % SIDE + c * SIDE; }

// The sum, or the largest, of what the threads that share a row have. Every one of them gets it.
__device__ __forceinline__ float sum_over_row(float x) {
    for (int bit = 2; bit < 2 * SIDE; bit *= 2) x += __shfl_xor_sync(ALL, x, bit);
    return x;
}

__device__ __forceinline__ float largest_over_row(float x) {
    for (int bit = 2; bit < 2 * SIDE; bit *= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, bit));
    return x;
}

// Four neighbouring numbers, read or written at once.
template <typename T>
struct __align__(4 * sizeof(T)) Four {
    T n[4];
};

__device__ __forceinline__ Four<float> four_at(const float* place) { return *(const Four<float>*)place; }

// The rows of one batch and head, in an array (batch, length, heads, width).
template <typename T>
struct Rows {
    T* first;
    long long step;
    int length, width;
    bool by_four;  // whether groups of four may be read at once, which needs places that are multiples of four

    __device__ Rows(T* x, long long length, long long heads, long long width)
        : first(x + (blockIdx.x / heads * length * heads + blockIdx.x % heads) * width), step(heads * width),
          length(length), width(width), by_four(width % 4 == 0 && (unsigned long long)x % sizeof(Four<T>) == 0) {}
};

// A tile of rows from `start` on, loaded by all threads together, with zeros beyond the last row and beyond the width.
template <int ROWS, int PADDED, typename T>
__device__ void load(float (&tile)[ROWS][PADDED], const Rows<const T>& x, int start) {
    constexpr int GROUPS = (PADDED - PAD) / 4, STEP = THREADS / GROUPS;  // a thread loads a group of every STEP-th row
    const int own = threadIdx.x / GROUPS, i = threadIdx.x % GROUPS * 4;
    const T* place = x.first + (start + own) * x.step + i;
    if (x.by_four) {
        EACH(n, ROWS / STEP) {
            Four<T> x4 = {};
            if (start + own + n * STEP < x.length && i < x.width) x4 = *(const Four<T>*)place;
            EACH(m, 4) tile[own + n * STEP][i + m] = wide(x4.n[m]);
            place += STEP * x.step;
        }
        return;
    }
    for (int r = own; r < ROWS; r += STEP, place += STEP * x.step)
        for (int m = 0; m < 4; m++) tile[r][i + m] = start + r < x.length && i + m < x.width ? wide(place[m]) : 0.0f;
}

// A thread's part of a product, times a factor, into the rows from `start` on.
template <int R, int C, typename T>
__device__ void save(const Rows<T>& x, int start, const float (&part)[R][C], float factor) {
    EACH(r, R) EACH(group, C / 4) {
        const int i = 4 * column(group);
        T* place = x.first + (start + row(r)) * x.step + i;
        Four<T> x4;
        EACH(m, 4) store(&x4.n[m], part[r][4 * group + m] * factor);
        if (start + row(r) >= x.length) continue;
        if (x.by_four && i < x.width) *(Four<T>*)place = x4;
        EACH(m, 4) if (!x.by_four && i + m < x.width) place[m] = x4.n[m];
    }
}

// product[r][c] = factor * (a[row r] . b[row c]), for the thread's rows of two tiles. __fmul_rn rounds the result: the
// compiler might otherwise compute scale * dot - largest in one operation, with one rounding. Forward, which looks for
// the largest score, has to round, and backward's weights would then differ from forward's.
template <int R, int C, int PADDED>
__device__ __forceinline__ void multiply_rows(float (&product)[R][C], float factor, const float (*a)[PADDED],
                                              const float (*b)[PADDED]) {
    EACH(r, R) EACH(c, C) product[r][c] = 0.0f;
#pragma unroll 1
    for (int i = 0; i < PADDED - PAD; i += 4) {
        Four<float> a4[R], b4[C];
        EACH(r, R) a4[r] = four_at(&a[row(r)][i]);
        EACH(c, C) b4[c] = four_at(&b[column(c)][i]);
        EACH(n, 4) EACH(r, R) EACH(c, C) product[r][c] += a4[r].n[n] * b4[c].n[n];
    }
    EACH(r, R) EACH(c, C) product[r][c] = __fmul_rn(factor, product[r][c]);
}

// The product of two rows, added up in the same order, so that with one key dweights - along is 0.
template <int PADDED>
__device__ float dot(const float (&a)[PADDED], const float (&b)[PADDED]) {
    float sum = 0.0f;
    for (int i = 0; i < PADDED - PAD; i++) sum += a[i] * b[i];
    return sum;
}

// collected += weights tile. A thread has groups of four columns of the result.
template <int R, int C, int ROWS, int PADDED>
__device__ __forceinline__ void multiply_add(float (&collected)[R][C], const float (*weights)[ROWS + PAD],
                                             const float (&tile)[ROWS][PADDED]) {
#pragma unroll 2
    for (int j = 0; j < ROWS; j += 4) {
        Four<float> w4[R];
        EACH(r, R) w4[r] = four_at(&weights[row(r)][j]);
        EACH(n, 4) EACH(group, C / 4) {
            const Four<float> x4 = four_at(&tile[j + n][4 * column(group)]);
            EACH(r, R) EACH(m, 4) collected[r][4 * group + m] += w4[r].n[n] * x4.n[m];
        }
    }
}

// What may be asked about a query and a key.
struct Pairs {
    const bool* mask;  // null where there is none; its strides are 0 along axes that it shares
    long long query_stride, key_stride;
    int t_q, t_k;
    bool causal;
    float rate, raised;
    unsigned long long seed;

    // Whether the query may look at the key.
    __device__ bool seen(int query, int key) const {
        if (query >= t_q || key >= t_k) return false;
        if (causal && key > query + t_k - t_q) return false;  // the queries are the last t_q of the t_k positions
        return !mask || mask[query * query_stride + key * key_stride];
    }

    // Whether all queries of a tile may look at all keys of a tile.
    __device__ bool all_seen(int query, int key, int rows) const {
        return !mask && query + rows <= t_q && key + rows <= t_k && (!causal || key + rows <= query + 1 + t_k - t_q);
    }

    // Whether dropout leaves the weight, times raised = 1 / (1 - rate). The random numbers are not stored but made
    // again, from the seed and the place of the weight.
    __device__ bool remains(int query, int key) const {
        return uniform(seed, ((unsigned long long)blockIdx.x * t_q + query) * t_k + key) >= rate;
    }
};

// The answers to a question about each of a thread's N x N places of a product, a bit for each place.
template <int N, typename Question>
__device__ __forceinline__ unsigned answers(bool yes_to_all, Question question) {
    if (yes_to_all) return ~0u;
    unsigned bits = 0;
#pragma unroll 1
    for (int r = 0; r < N; r++) EACH(c, N) bits |= (unsigned)question(row(r), column(c)) << (r * N + c);
    return bits;
}

__device__ __forceinline__ bool yes(unsigned answers, int place) { return answers >> place & 1; }

#define SHAPES long long heads, long long t_q, long long t_k, long long d_k, long long d_v
#define OPTIONS                                                                                            \
    const bool *mask, long long mask_batch, long long mask_head, long long mask_query, long long mask_key, \
        long long causal, float scale, float rate, unsigned long long seed
#define PAIRS                                                                                          \
    Pairs{mask ? mask + blockIdx.x / heads * mask_batch + blockIdx.x % heads * mask_head : mask, mask_query, \
          mask_key, (int)t_q, (int)t_k, causal != 0, rate, 1.0f / (1.0f - rate), seed}

// blockIdx.x: which batch and head; blockIdx.y: which queries. The last ones go first: where attention is causal, they
// see the most keys.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_forward(const T* q, const T* k, const T* v, T* output, float* largest_of, float* inverse_of,
                      SHAPES, OPTIONS) {
    constexpr int ROWS = TILE<WIDTH>, N = ROWS / SIDE, COLUMNS = WIDTH / SIDE;
    __shared__ __align__(16) float queries[ROWS][WIDTH + PAD], keys[ROWS][WIDTH + PAD], values[ROWS][WIDTH + PAD];
    __shared__ __align__(16) float weights[ROWS][ROWS + PAD];
    const int first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    const Rows<const T> k_rows(k, t_k, heads, d_k), v_rows(v, t_k, heads, d_v);
    const Pairs pairs = PAIRS;

    load(queries, Rows<const T>(q, t_q, heads, d_k), first);
    float collected[N][COLUMNS] = {}, largest[N], total[N] = {};  // of total, each thread has the part of its columns
    EACH(r, N) largest[r] = LOWEST;

    // Where attention is causal, the last query of the block sees the most keys.
    const int end = causal ? min(t_k, first + ROWS + t_k - t_q) : t_k;
    for (int start = 0; start < end; start += ROWS) {
        __syncthreads();  // until all are done with the tile before
        load(keys, k_rows, start);
        load(values, v_rows, start);
        __syncthreads();

        const unsigned seen = answers<N>(
            pairs.all_seen(first, start, ROWS), [&](int r, int c) { return pairs.seen(first + r, start + c); });
        const unsigned remain = answers<N>(
            rate == 0.0f, [&](int r, int c) { return pairs.remains(first + r, start + c); });
        float scores[N][N];
        multiply_rows(scores, scale, queries, keys);
        EACH(r, N) {
            const float before = largest[r];
            EACH(c, N) {
                if (!yes(seen, r * N + c)) scores[r][c] = -INFINITE;
                largest[r] = fmaxf(largest[r], scores[r][c]);
            }
            largest[r] = largest_over_row(largest[r]);
            const float correction = expf(before - largest[r]);
            total[r] *= correction;
            EACH(c, COLUMNS) collected[r][c] *= correction;
            EACH(c, N) {
                const float weight = expf(scores[r][c] - largest[r]);
                total[r] += weight;
                weights[row(r)][column(c)] = yes(remain, r * N + c) ? weight * pairs.raised : 0.0f;
            }
        }
        __syncwarp();  // until the rows of weights are written, each by threads of one warp
        multiply_add(collected, weights, values);
    }
    EACH(r, N) {
        total[r] = sum_over_row(total[r]);
        const float inverse = total[r] == 0.0f ? 0.0f : 1.0f / total[r];  // a query that sees nothing gets zeros
        EACH(c, COLUMNS) collected[r][c] *= inverse;
        if (first + row(r) >= t_q || column(0) != 0) continue;
        largest_of[blockIdx.x * t_q + first + row(r)] = largest[r];
        inverse_of[blockIdx.x * t_q + first + row(r)] = inverse;
    }
    save(Rows<T>(output, t_q, heads, d_v), first, collected, 1.0f);
}

// dq, and `along` of each query, which attention_backward_keys reads. Blocks as in forward.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_backward_queries(const T* q, const T* k, const T* v, const T* output, const float* largest_of,
                               const float* inverse_of, const T* doutput, T* dq, float* along_of, SHAPES, OPTIONS) {
    constexpr int ROWS = TILE<WIDTH>, N = ROWS / SIDE, COLUMNS = WIDTH / SIDE;
    __shared__ __align__(16) float queries[ROWS][WIDTH + PAD], douts[ROWS][WIDTH + PAD];
    __shared__ __align__(16) float keys[ROWS][WIDTH + PAD], values[ROWS][WIDTH + PAD], dscores[ROWS][ROWS + PAD];
    const int first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    const Rows<const T> k_rows(k, t_k, heads, d_k), v_rows(v, t_k, heads, d_v);
    const Pairs pairs = PAIRS;

    load(queries, Rows<const T>(q, t_q, heads, d_k), first);
    load(douts, Rows<const T>(doutput, t_q, heads, d_v), first);
    load(values, Rows<const T>(output, t_q, heads, d_v), first);  // for `along`
    __syncthreads();
    float collected[N][COLUMNS] = {}, largest[N], inverse[N], along[N];
    EACH(r, N) {
        const bool exists = first + row(r) < t_q;
        const long long kept = blockIdx.x * t_q + first + row(r);
        largest[r] = exists ? largest_of[kept] : 0.0f;
        inverse[r] = exists ? inverse_of[kept] : 0.0f;
        along[r] = dot(douts[row(r)], values[row(r)]);
        if (exists && column(0) == 0) along_of[kept] = along[r];
    }

    const int end = causal ? min(t_k, first + ROWS + t_k - t_q) : t_k;
    for (int start = 0; start < end; start += ROWS) {
        __syncthreads();
        load(keys, k_rows, start);
        load(values, v_rows, start);
        __syncthreads();

        const unsigned seen = answers<N>(
            pairs.all_seen(first, start, ROWS), [&](int r, int c) { return pairs.seen(first + r, start + c); });
        const unsigned remain = answers<N>(
            rate == 0.0f, [&](int r, int c) { return pairs.remains(first + r, start + c); });
        float scores[N][N], dweights[N][N];
        multiply_rows(scores, scale, queries, keys);
        multiply_rows(dweights, 1.0f, douts, values);
        EACH(r, N) EACH(c, N) {
            const float weight = yes(seen, r * N + c) ? expf(scores[r][c] - largest[r]) * inverse[r] : 0.0f;
            const float dweight = yes(remain, r * N + c) ? dweights[r][c] * pairs.raised : 0.0f;
            dscores[row(r)][column(c)] = weight * (dweight - along[r]);
        }
        __syncwarp();
        multiply_add(collected, dscores, keys);
    }
    save(Rows<T>(dq, t_q, heads, d_k), first, collected, scale);
}

// dk and dv. blockIdx.y: which keys. Here rows are keys and columns queries.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_backward_keys(const T* q, const T* k, const T* v, const float* largest_of, const float* inverse_of,
                            const float* along_of, const T* doutput, T* dk, T* dv, SHAPES, OPTIONS) {
    constexpr int ROWS = TILE<WIDTH>, N = ROWS / SIDE, COLUMNS = WIDTH / SIDE;
    __shared__ __align__(16) float keys[ROWS][WIDTH + PAD], values[ROWS][WIDTH + PAD], weights[ROWS][ROWS + PAD];
    __shared__ __align__(16) float queries[ROWS][WIDTH + PAD], douts[ROWS][WIDTH + PAD], dscores[ROWS][ROWS + PAD];
    const int first = blockIdx.y * ROWS;
    const Rows<const T> q_rows(q, t_q, heads, d_k), dout_rows(doutput, t_q, heads, d_v);
    const Pairs pairs = PAIRS;

    load(keys, Rows<const T>(k, t_k, heads, d_k), first);
    load(values, Rows<const T>(v, t_k, heads, d_v), first);
    float dk_part[N][COLUMNS] = {}, dv_part[N][COLUMNS] = {};

    // Where attention is causal, the first key of the block is seen by the most queries.
    const int begin = causal ? max(0ll, first - (t_k - t_q)) : 0;
    for (int start = begin; start < t_q; start += ROWS) {
        __syncthreads();
        load(queries, q_rows, start);
        load(douts, dout_rows, start);
        __syncthreads();

        const unsigned seen = answers<N>(
            pairs.all_seen(start, first, ROWS), [&](int r, int c) { return pairs.seen(start + c, first + r); });
        const unsigned remain = answers<N>(
            rate == 0.0f, [&](int r, int c) { return pairs.remains(start + c, first + r); });
        float scores[N][N], dweights[N][N];
        multiply_rows(scores, scale, keys, queries);
        multiply_rows(dweights, 1.0f, values, douts);
        EACH(c, N) {
            const long long kept = blockIdx.x * t_q + min(start + column(c), (int)t_q - 1);
            const float largest = largest_of[kept], inverse = inverse_of[kept], along = along_of[kept];
            EACH(r, N) {
                const float weight = yes(seen, r * N + c) ? expf(scores[r][c] - largest) * inverse : 0.0f;
                const float remaining = yes(remain, r * N + c) ? pairs.raised : 0.0f;
                weights[row(r)][column(c)] = weight * remaining;
                dscores[row(r)][column(c)] = weight * (dweights[r][c] * remaining - along);
            }
        }
        __syncwarp();
        multiply_add(dv_part, weights, douts);
        multiply_add(dk_part, dscores, queries);
    }
    save(Rows<T>(dk, t_k, heads, d_k), first, dk_part, scale);
    save(Rows<T>(dv, t_k, heads, d_v), first, dv_part, 1.0f);
}
