// CUDA on the processor, as far as the kernels use it: a .cu file after this header is C++.
//
// The blocks of a grid run one after the other. The threads of a block are fibers, each with a stack of its own, that
// run in turn; at a barrier a thread steps aside until the others have come. They run in ascending or in descending
// order: a kernel that lacks a barrier gives another result in one of the two.
//
// A launch fails, with a message, where a barrier waits for threads that end or wait elsewhere, and where the arguments
// are not of the kernel's number and types.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__ static
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // one block at a time, so one copy is enough
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned x, y, z;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

inline float __int_as_float(int bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline float __fmul_rn(float x, float y) { return x * y; }

using std::max;
using std::min;

namespace emulator {

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    dim3 index;
    bool ended = false;
};

struct Barrier {
    unsigned members = 0, arrived = 0, passed = 0;
    int line = 0;
};

constexpr unsigned WARP_SIZE = 32;
constexpr size_t STACK = 1 << 16;

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<Barrier> warps;
static std::vector<float> offered[2];  // what the lanes exchange, by turns
static Barrier block;
static unsigned current;
static bool moved;  // whether any thread got on in this round
static std::string problem;
static std::function<void()> body;

static void step_aside() { swapcontext(&fibers[current].context, &scheduler); }

static void wait(Barrier& barrier, int line) {
    if (barrier.arrived && barrier.line != line && problem.empty()) problem = "threads wait at different barriers";
    barrier.line = line;
    const unsigned pass = barrier.passed;
    if (++barrier.arrived == barrier.members) {
        barrier.arrived = 0;
        barrier.passed++;
        moved = true;
    }
    while (barrier.passed == pass) step_aside();
}

static float exchange(float mine, int bit) {
    Barrier& warp = warps[current / WARP_SIZE];
    std::vector<float>& slots = offered[warp.passed % 2];
    const unsigned me = current;
    slots[me] = mine;
    wait(warp, 0);
    return slots[me ^ bit];
}

static void start() {
    body();
    fibers[current].ended = true;
    moved = true;
    step_aside();
}

static void run_block(bool descending) {
    const unsigned n = blockDim.x * blockDim.y * blockDim.z;
    fibers.resize(n);
    warps.assign((n + WARP_SIZE - 1) / WARP_SIZE, Barrier{});
    for (auto& slots : offered) slots.assign(warps.size() * WARP_SIZE, NAN);
    block = Barrier{};
    block.members = n;
    for (unsigned i = 0; i < n; i++) {
        Fiber& fiber = fibers[i];
        warps[i / WARP_SIZE].members++;
        fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        fiber.ended = false;
        if (!fiber.stack) fiber.stack.reset(new char[STACK]);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, start, 0);
    }
    for (unsigned left = n; left && problem.empty();) {
        moved = false;
        for (unsigned k = 0; k < n; k++) {
            current = descending ? n - 1 - k : k;
            if (fibers[current].ended) continue;
            threadIdx = fibers[current].index;
            swapcontext(&scheduler, &fibers[current].context);
            left -= fibers[current].ended;
        }
        if (!moved && problem.empty()) problem = "a barrier waits for threads that never come";
    }
}

template <typename A>
constexpr char kind() {
    if (std::is_pointer<A>::value) {
        using To = std::remove_cv_t<std::remove_pointer_t<A>>;
        if (std::is_same<To, float>::value) return 'F';
        if (std::is_same<To, bool>::value) return 'B';
        if (std::is_integral<To>::value) return sizeof(To) == 8 ? 'Q' : 'I';
        return 'E';  // float16
    }
    if (std::is_same<A, float>::value) return 'f';
    if (std::is_same<A, unsigned long long>::value) return 'u';
    return std::is_same<A, long long>::value ? 'q' : '?';
}

template <typename... A, size_t... I>
void launch(void (*kernel)(A...), const char* kinds, void** arguments, bool descending, std::index_sequence<I...>) {
    const char expected[] = {kind<A>()..., 0};
    std::string given = kinds;
    for (size_t i = 0; i < given.size() && i < sizeof...(A); i++)
        if (given[i] == '0' && strchr("FBQIEu", expected[i])) given[i] = expected[i];  // the null pointer, or 0
    if (given != expected) {
        problem = "the kernel takes " + std::string(expected) + ", got " + given;
        return;
    }
    body = [=] { kernel(*static_cast<std::remove_cv_t<A>*>(arguments[I])...); };
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                if (problem.empty()) run_block(descending);
}

template <typename... A>
const char* launch(void (*kernel)(A...), const unsigned* sizes, const char* kinds, void** arguments, bool descending) {
    gridDim = {sizes[0], sizes[1], sizes[2]};
    blockDim = {sizes[3], sizes[4], sizes[5]};
    problem.clear();
    launch(kernel, kinds, arguments, descending, std::index_sequence_for<A...>{});
    return problem.c_str();
}

}  // namespace emulator

#define __syncthreads() emulator::wait(emulator::block, __LINE__)
#define __syncwarp() emulator::wait(emulator::warps[emulator::current / emulator::WARP_SIZE], __LINE__)
#define __shfl_xor_sync(mask, x, bit) emulator::exchange(x, bit)
