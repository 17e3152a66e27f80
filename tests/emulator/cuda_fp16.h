// The part of CUDA's header of this name that the kernels use, for a C++ compiler that knows _Float16.
#pragma once

struct __half {
    _Float16 value;
};
inline float __half2float(__half x) { return (float)x.value; }
inline __half __float2half(float x) { return {(_Float16)x}; }
