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
// Every kernel has the same plan. A block takes some rows, of q or of k, into shared memory. The rows of the other side
// come by in tiles. For each tile the block makes two kinds of products of small matrices:
//
//     multiply_rows    scores = mine theirs^T, each row of mine with each row of theirs (dweights likewise)
//     multiply_add     collected += weights theirs (or dscores theirs)
//
// A thread computes a small rectangle of a product, in registers. With 4 rows of one matrix and 4 of the other it makes
// 16 products of 8 numbers read: memory, even shared memory, is slower than arithmetic. The weights go through shared
// memory from the threads that computed them to those that need them. Each sum is collected by one thread in a fixed
// order, so results are the same each time. WIDTH is 32, 64 or 128; shorter rows are filled up with zeros.
//
// Arrays lie as (batch, T, heads, width) in memory, which is how they come out of the linear maps; what is kept of each
// query lies as (batch, heads, T_q). Dropout: see Remains.

#include "common.cuh"

constexpr int SIDE = 8;               // the threads of a block form a square
constexpr int THREADS = SIDE * SIDE;  // of a block
constexpr int PAD = 4;                // numbers between two rows in shared memory, so that they lie in different banks

template <int WIDTH>
constexpr int TILE = WIDTH == 128 ? 16 : 32;  // rows of a tile; all tiles of a block take at most 48 KB

// Where a thread stands in the square. It takes rows row(), row() + SIDE, ... of a product. Two lanes that differ in the
// lowest bit share a column, and two that differ in the next bit share a row: so pairs of lanes read the same numbers,
// and shared memory serves half a warp at once. All threads of a row are in one warp.
__device__ __forceinline__ int my_row() { return threadIdx.x % 2 + threadIdx.x / 16 * 2; }
__device__ __forceinline__ int my_column() { return threadIdx.x / 2 % SIDE; }

// The sum, or the largest, of what the threads of a row have. Every one of them gets it.
__device__ __forceinline__ float sum_over_row(float x) {
    for (int bit = 2; bit < 2 * SIDE; bit *= 2) x += __shfl_xor_sync(ALL, x, bit);
    return x;
}

__device__ __forceinline__ float largest_over_row(float x) {
    for (int bit = 2; bit < 2 * SIDE; bit *= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, bit));
    return x;
}

// The answers to a question about each place of a thread's part of a product, R rows and C columns: a bit for each.
template <int R, int C, typename Question>
__device__ __forceinline__ unsigned answers(bool all_yes, Question question) {
    if (all_yes) return ~0u;
    unsigned bits = 0;
#pragma unroll 1
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            bits |= (unsigned)question(my_row() + r * SIDE, my_column() + c * SIDE) << (r * C + c);
    return bits;
}

// Four neighbouring numbers, which are read or written at once.
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
    bool by_four;  // whether each group of four begins where the memory allows to read it at once

    __device__ Rows(T* x, long long length, long long heads, long long width)
        : first(x + (blockIdx.x / heads * length * heads + blockIdx.x % heads) * width),
          step(heads * width), length(length), width(width),
          by_four(width % 4 == 0 && (unsigned long long)x % sizeof(Four<T>) == 0) {}
};

// A tile of rows from `start` on, loaded by all threads together, with zeros beyond the last row and beyond the width.
template <int ROWS, int PADDED, typename T>
__device__ void load(float (&tile)[ROWS][PADDED], const Rows<const T>& x, int start) {
    constexpr int GROUPS = (PADDED - PAD) / 4, STEP = THREADS / GROUPS;  // a thread loads every STEP-th row's same group
    const int first_row = threadIdx.x / GROUPS, i = threadIdx.x % GROUPS * 4;
    const T* place = x.first + (start + first_row) * x.step + i;
    if (x.by_four) {
#pragma unroll
        for (int row = 0; row < ROWS; row += STEP, place += STEP * x.step) {
            Four<T> x4 = {};
            if (start + first_row + row < x.length && i < x.width) x4 = *(const Four<T>*)place;
            *(Four<float>*)&tile[first_row + row][i] = {wide(x4.n[0]), wide(x4.n[1]), wide(x4.n[2]), wide(x4.n[3])};
        }
    } else {
#pragma unroll 1
        for (int row = 0; row < ROWS; row += STEP, place += STEP * x.step)
            for (int n = 0; n < 4; n++) {
                const bool exists = start + first_row + row < x.length && i + n < x.width;
                tile[first_row + row][i + n] = exists ? wide(place[n]) : 0.0f;
            }
    }
}

// A thread's part of a product, times a factor, into the rows from `start` on.
template <int R, int C, typename T>
__device__ void save(const Rows<T>& x, int start, const float (&part)[R][C], float factor) {
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int row = start + my_row() + r * SIDE;
#pragma unroll
        for (int c = 0; c < C; c += 4) {
            const int i = 4 * my_column() + c * SIDE;
            if (row >= x.length || i >= x.width) continue;
            T* place = &x.first[row * x.step + i];
            Four<T> x4;
#pragma unroll
            for (int n = 0; n < 4; n++) store(&x4.n[n], part[r][c + n] * factor);
            if (x.by_four) *(Four<T>*)place = x4;
#pragma unroll
            for (int n = 0; n < 4; n++)
                if (!x.by_four && i + n < x.width) place[n] = x4.n[n];
        }
    }
}

// The product of two rows, added up in the same order as in multiply_rows: with one key, dweights - along must be 0.
template <int PADDED>
__device__ float dot(const float (&a)[PADDED], const float (&b)[PADDED]) {
    float sum = 0.0f;
    for (int i = 0; i < PADDED - PAD; i += 4) {
        const Four<float> a4 = four_at(&a[i]), b4 = four_at(&b[i]);
#pragma unroll
        for (int n = 0; n < 4; n++) sum += a4.n[n] * b4.n[n];
    }
    return sum;
}

// product[r][c] = factor * a[row r] . b[row c], for the thread's rows of two tiles. __fmul_rn rounds the product. The
// compiler might otherwise leave this to a subtraction that follows: scale * dot - largest is then one operation, with
// one rounding. Forward, which compares scores first, has to round them, and the weights would differ from backward's.
template <int R, int C, int PADDED>
__device__ __forceinline__ void multiply_rows(float (&product)[R][C], float factor, const float (*a)[PADDED],
                                              const float (*b)[PADDED]) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) product[r][c] = 0.0f;
#pragma unroll 1
    for (int i = 0; i < PADDED - PAD; i += 4) {
        Four<float> a4[R], b4[C];
#pragma unroll
        for (int r = 0; r < R; r++) a4[r] = four_at(&a[my_row() + r * SIDE][i]);
#pragma unroll
        for (int c = 0; c < C; c++) b4[c] = four_at(&b[my_column() + c * SIDE][i]);
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int c = 0; c < C; c++) product[r][c] += a4[r].n[n] * b4[c].n[n];
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) product[r][c] = __fmul_rn(factor, product[r][c]);
}

// collected[r][c] += sum_j weights[row r][j] tile[j][column c]; a thread's columns are groups of four.
template <int R, int C, int ROWS, int PADDED>
__device__ __forceinline__ void multiply_add(float (&collected)[R][C], const float (*weights)[ROWS + PAD],
                                             const float (&tile)[ROWS][PADDED]) {
#pragma unroll 2
    for (int j = 0; j < ROWS; j += 4) {
        Four<float> w4[R];
#pragma unroll
        for (int r = 0; r < R; r++) w4[r] = four_at(&weights[my_row() + r * SIDE][j]);
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int c = 0; c < C; c += 4) {
                const Four<float> x4 = four_at(&tile[j + n][4 * my_column() + c * SIDE]);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int m = 0; m < 4; m++) collected[r][c + m] += w4[r].n[n] * x4.n[m];
            }
    }
}

// Which query may look at which key. `mask` is null where there is none; its strides are 0 along axes that it shares.
struct Seen {
    const bool* mask;
    long long query_stride, key_stride;
    int t_q, t_k;
    bool causal;

    __device__ Seen(const bool* masks, long long batch_stride, long long head_stride, long long query_stride,
                    long long key_stride, long long heads, long long t_q, long long t_k, bool causal)
        : mask(masks), query_stride(query_stride), key_stride(key_stride), t_q(t_q), t_k(t_k), causal(causal) {
        if (mask) mask += blockIdx.x / heads * batch_stride + blockIdx.x % heads * head_stride;
    }

    __device__ bool operator()(int query, int key) const {
        if (query >= t_q || key >= t_k) return false;
        if (causal && key > query + t_k - t_q) return false;  // the queries are the last t_q of the t_k positions
        return !mask || mask[query * query_stride + key * key_stride];
    }

    // Whether all queries of a tile see all keys of another.
    __device__ bool all(int query, int n_queries, int key, int n_keys) const {
        if (mask || query + n_queries > t_q || key + n_keys > t_k) return false;
        return !causal || key + n_keys - 1 <= query + t_k - t_q;
    }
};

// Which weights remain after dropout; they are multiplied by 1 / (1 - rate). The random numbers are not stored but made
// again, from the seed and the place of the weight, by the formula of core/ops/random_numbers.py.
struct Remains {
    float rate;
    unsigned long long seed;
    long long t_q, t_k;

    __device__ bool operator()(int query, int key) const {
        const unsigned long long place = (blockIdx.x * t_q + query) * t_k + key;
        unsigned long long z = (place / 2 + 1) * 0x9E3779B97F4A7C15ull + seed;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        const unsigned int half = (unsigned int)(place % 2 ? z >> 32 : z);
        return (float)(half >> 8) * 5.9604644775390625e-8f >= rate;  // 2^-24
    }
};

#define SHAPES long long heads, long long t_q, long long t_k, long long d_k, long long d_v
#define OPTIONS                                                                                            \
    const bool *mask, long long mask_batch, long long mask_head, long long mask_query, long long mask_key, \
        long long causal, float scale, float rate, unsigned long long seed
#define SEEN Seen(mask, mask_batch, mask_head, mask_query, mask_key, heads, t_q, t_k, causal)
#define REMAINS Remains{rate, seed, t_q, t_k}

// blockIdx.x: which batch and head; blockIdx.y: which rows, the last first, since they see most if attention is causal.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS, 5) attention_forward(const T* q, const T* k, const T* v, T* output,
                                                             float* largest_of, float* inverse_of, SHAPES, OPTIONS) {
    constexpr int MINE = TILE<WIDTH>, THEIRS = TILE<WIDTH>, R = MINE / SIDE, C = THEIRS / SIDE;
    __shared__ __align__(16) float queries[MINE][WIDTH + PAD], keys[THEIRS][WIDTH + PAD], values[THEIRS][WIDTH + PAD];
    __shared__ __align__(16) float weights[MINE][THEIRS + PAD];
    const int first = (gridDim.y - 1 - blockIdx.y) * MINE;
    const Rows<const T> k_rows(k, t_k, heads, d_k), v_rows(v, t_k, heads, d_v);
    const Seen seen = SEEN;
    const Remains remains = REMAINS;
    const float raised = 1.0f / (1.0f - rate);

    load(queries, Rows<const T>(q, t_q, heads, d_k), first);
    float collected[R][WIDTH / SIDE] = {}, largest[R], total[R] = {};  // each thread has a part of total
#pragma unroll
    for (int r = 0; r < R; r++) largest[r] = LOWEST;

    // Where attention is causal, the last query of the block sees the most keys.
    const int end = causal ? min(t_k, first + MINE + t_k - t_q) : t_k;
    for (int start = 0; start < end; start += THEIRS) {
        __syncthreads();  // until all are done with the tile before
        load(keys, k_rows, start);
        load(values, v_rows, start);
        __syncthreads();

        const unsigned visible = answers<R, C>(
            seen.all(first, MINE, start, THEIRS), [&](int row, int column) { return seen(first + row, start + column); });
        const unsigned remain = answers<R, C>(
            rate == 0.0f, [&](int row, int column) { return remains(first + row, start + column); });
        float scores[R][C];
        multiply_rows(scores, scale, queries, keys);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float before = largest[r];
#pragma unroll
            for (int c = 0; c < C; c++) {
                if (!(visible >> (r * C + c) & 1)) scores[r][c] = -INFINITE;
                largest[r] = fmaxf(largest[r], scores[r][c]);
            }
            largest[r] = largest_over_row(largest[r]);
            const float correction = expf(before - largest[r]);
            total[r] *= correction;
#pragma unroll
            for (int c = 0; c < WIDTH / SIDE; c++) collected[r][c] *= correction;
#pragma unroll
            for (int c = 0; c < C; c++) {
                const float weight = expf(scores[r][c] - largest[r]);
                total[r] += weight;
                weights[my_row() + r * SIDE][my_column() + c * SIDE] = remain >> (r * C + c) & 1 ? weight * raised : 0.0f;
            }
        }
        __syncwarp();  // until the threads of the row have written their weights
        multiply_add(collected, weights, values);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int query = first + my_row() + r * SIDE;
        total[r] = sum_over_row(total[r]);
        const float inverse = total[r] == 0.0f ? 0.0f : 1.0f / total[r];  // a query that sees nothing gets zeros
#pragma unroll
        for (int c = 0; c < WIDTH / SIDE; c++) collected[r][c] *= inverse;
        if (query >= t_q || my_column() != 0) continue;
        largest_of[blockIdx.x * t_q + query] = largest[r];
        inverse_of[blockIdx.x * t_q + query] = inverse;
    }
    save(Rows<T>(output, t_q, heads, d_v), first, collected, 1.0f);
}

// dq, and `along` of each query, which attention_backward_keys reads. Blocks as in forward.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS, 5) attention_backward_queries(const T* q, const T* k, const T* v,
                                                                      const T* output, const float* largest_of,
                                                                      const float* inverse_of, const T* doutput, T* dq,
                                                                      float* along_of, SHAPES, OPTIONS) {
    constexpr int MINE = TILE<WIDTH>, THEIRS = TILE<WIDTH>, R = MINE / SIDE, C = THEIRS / SIDE;
    __shared__ __align__(16) float queries[MINE][WIDTH + PAD], douts[MINE][WIDTH + PAD];
    __shared__ __align__(16) float keys[THEIRS][WIDTH + PAD], values[THEIRS][WIDTH + PAD];
    __shared__ __align__(16) float dscores[MINE][THEIRS + PAD];
    const int first = (gridDim.y - 1 - blockIdx.y) * MINE;
    const Rows<const T> k_rows(k, t_k, heads, d_k), v_rows(v, t_k, heads, d_v);
    const Seen seen = SEEN;
    const Remains remains = REMAINS;
    const float raised = 1.0f / (1.0f - rate);

    load(queries, Rows<const T>(q, t_q, heads, d_k), first);
    load(douts, Rows<const T>(doutput, t_q, heads, d_v), first);
    load(values, Rows<const T>(output, t_q, heads, d_v), first);  // for `along`
    __syncthreads();
    float collected[R][WIDTH / SIDE] = {}, largest[R], inverse[R], along[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int row = my_row() + r * SIDE;
        const long long kept = blockIdx.x * t_q + first + row;
        const bool exists = first + row < t_q;
        largest[r] = exists ? largest_of[kept] : 0.0f;
        inverse[r] = exists ? inverse_of[kept] : 0.0f;
        along[r] = dot(douts[row], values[row]);
        if (exists && my_column() == 0) along_of[kept] = along[r];
    }

    const int end = causal ? min(t_k, first + MINE + t_k - t_q) : t_k;
    for (int start = 0; start < end; start += THEIRS) {
        __syncthreads();
        load(keys, k_rows, start);
        load(values, v_rows, start);
        __syncthreads();

        const unsigned visible = answers<R, C>(
            seen.all(first, MINE, start, THEIRS), [&](int row, int column) { return seen(first + row, start + column); });
        const unsigned remain = answers<R, C>(
            rate == 0.0f, [&](int row, int column) { return remains(first + row, start + column); });
        float scores[R][C], dweights[R][C];
        multiply_rows(scores, scale, queries, keys);
        multiply_rows(dweights, 1.0f, douts, values);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < C; c++) {
                const float weight = visible >> (r * C + c) & 1 ? expf(scores[r][c] - largest[r]) * inverse[r] : 0.0f;
                const float dweight = remain >> (r * C + c) & 1 ? dweights[r][c] * raised : 0.0f;
                dscores[my_row() + r * SIDE][my_column() + c * SIDE] = weight * (dweight - along[r]);
            }
        __syncwarp();
        multiply_add(collected, dscores, keys);
    }
    save(Rows<T>(dq, t_q, heads, d_k), first, collected, scale);
}

// dk and dv. blockIdx.y: which keys, the first first, since most queries see them if attention is causal.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS, 5) attention_backward_keys(const T* q, const T* k, const T* v,
                                                                   const float* largest_of, const float* inverse_of,
                                                                   const float* along_of, const T* doutput, T* dk,
                                                                   T* dv, SHAPES, OPTIONS) {
    constexpr int MINE = TILE<WIDTH>, THEIRS = TILE<WIDTH>, R = MINE / SIDE, C = THEIRS / SIDE;
    __shared__ __align__(16) float keys[MINE][WIDTH + PAD], values[MINE][WIDTH + PAD];
    __shared__ __align__(16) float queries[THEIRS][WIDTH + PAD], douts[THEIRS][WIDTH + PAD];
    __shared__ __align__(16) float weights[MINE][THEIRS + PAD], dscores[MINE][THEIRS + PAD];
    const int first = blockIdx.y * MINE;
    const Rows<const T> q_rows(q, t_q, heads, d_k), dout_rows(doutput, t_q, heads, d_v);
    const Seen seen = SEEN;
    const Remains remains = REMAINS;
    const float raised = 1.0f / (1.0f - rate);

    load(keys, Rows<const T>(k, t_k, heads, d_k), first);
    load(values, Rows<const T>(v, t_k, heads, d_v), first);
    float dk_part[R][WIDTH / SIDE] = {}, dv_part[R][WIDTH / SIDE] = {};

    // Where attention is causal, the first key of the block is seen by the most queries.
    const int begin = causal ? max(0ll, first - (t_k - t_q)) : 0;
    for (int start = begin; start < t_q; start += THEIRS) {
        __syncthreads();
        load(queries, q_rows, start);
        load(douts, dout_rows, start);
        __syncthreads();

        const unsigned visible = answers<R, C>(
            seen.all(start, THEIRS, first, MINE), [&](int row, int column) { return seen(start + column, first + row); });
        const unsigned remain = answers<R, C>(
            rate == 0.0f, [&](int row, int column) { return remains(start + column, first + row); });
        float scores[R][C], dweights[R][C];
        multiply_rows(scores, scale, keys, queries);
        multiply_rows(dweights, 1.0f, values, douts);
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int column = my_column() + c * SIDE;
            const long long kept = blockIdx.x * t_q + min(start + column, (int)t_q - 1);
            const float largest = largest_of[kept], inverse = inverse_of[kept], along = along_of[kept];
#pragma unroll
            for (int r = 0; r < R; r++) {
                const int row = my_row() + r * SIDE;
                const float weight = visible >> (r * C + c) & 1 ? expf(scores[r][c] - largest) * inverse : 0.0f;
                const float remaining = remain >> (r * C + c) & 1 ? raised : 0.0f;
                weights[row][column] = weight * remaining;
                dscores[row][column] = weight * (dweights[r][c] * remaining - along);
            }
        }
        __syncwarp();
        multiply_add(dv_part, weights, douts);
        multiply_add(dk_part, dscores, queries);
    }
    save(Rows<T>(dk, t_k, heads, d_k), first, dk_part, scale);
    save(Rows<T>(dv, t_k, heads, d_v), first, dv_part, 1.0f);
}
