// MOE_ASAN, MOE_TSAN: 1 where the tests are built with the address or the thread sanitizer, else 0. GCC defines a macro
// of its own, Clang has a feature. MOE_SANITIZED: 1 with any sanitizer (tests/CMakeLists.txt).
#pragma once

#if defined(__has_feature)
#define MOE_HAS_FEATURE(name) __has_feature(name)
#else
#define MOE_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || MOE_HAS_FEATURE(address_sanitizer)
#define MOE_ASAN 1
#else
#define MOE_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || MOE_HAS_FEATURE(thread_sanitizer)
#define MOE_TSAN 1
#else
#define MOE_TSAN 0
#endif
