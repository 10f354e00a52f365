// Target regions: functions between MOE_TARGET_BEGIN and MOE_TARGET_END are compiled for the named ISA
// features; everything else keeps the baseline. Per-file -m flags would let the linker keep an AVX copy
// of an inline library function for everyone, where older machines would run it. Open a region after all #includes
// only.
//
// GCC's push_options and Clang's attribute do the same: both name features for the functions
// between the marks. A region around an #include would also compile the header's inline functions
// for AVX-512, and the linker would be free to keep that copy for code that runs anywhere. A
// constant outside of functions is not affected, so tables may stand inside a region.
#pragma once

#define MOE_PRAGMA(x) _Pragma(#x)
#if defined(__clang__)
#define MOE_TARGET_BEGIN(features) \
  MOE_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define MOE_TARGET_END MOE_PRAGMA(clang attribute pop)
#else
#define MOE_TARGET_BEGIN(features) MOE_PRAGMA(GCC push_options) MOE_PRAGMA(GCC target(features))
#define MOE_TARGET_END MOE_PRAGMA(GCC pop_options)
#endif
