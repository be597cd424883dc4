// What our objects use of the system that systems before 2021 do not offer, in terms of what they
// do. Linked into each library of a binary wheel and hidden in it; see build_tools/old_system.py.
//
// The linker knows a function by its symbol, so the declarations of the system's headers, which are
// those of newer ones, are left alone.
#include <cstddef>
#include <new>

#define TFHVD_SYMBOL(name) __asm__(name)
#define TFHVD_HIDDEN __attribute__((visibility("hidden")))

namespace {

#if defined(__x86_64__)
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;
#endif

// std::ios_base::in | std::ios_base::out
constexpr int kInAndOut = 8 | 16;

}  // namespace

extern "C" {

// Before 2.33 the C library had these under other names.
int tfhvd_xstat(int version, const char* path, void* out) TFHVD_SYMBOL("__xstat");
int tfhvd_fxstat(int version, int file, void* out) TFHVD_SYMBOL("__fxstat");
TFHVD_HIDDEN int tfhvd_stat(const char* path, void* out) TFHVD_SYMBOL("stat");
TFHVD_HIDDEN int tfhvd_fstat(int file, void* out) TFHVD_SYMBOL("fstat");
int tfhvd_stat(const char* path, void* out) { return tfhvd_xstat(kStatVersion, path, out); }
int tfhvd_fstat(int file, void* out) { return tfhvd_fxstat(kStatVersion, file, out); }

// Since 2.32: whether the process has one thread. Never said here: then counters are atomic.
TFHVD_HIDDEN extern char tfhvd_single_threaded TFHVD_SYMBOL("__libc_single_threaded");
char tfhvd_single_threaded = 0;

// std::__throw_bad_array_new_length(), since libstdc++ 11.
[[noreturn]] TFHVD_HIDDEN void tfhvd_throw_bad_array_new_length()
    TFHVD_SYMBOL("_ZSt28__throw_bad_array_new_lengthv");
void tfhvd_throw_bad_array_new_length() { throw std::bad_array_new_length(); }

// std::exception_ptr counted in its copy constructor and destructor before libstdc++ 11, since in
// _M_addref() and _M_release().
void tfhvd_copy_exception(void* self, const void* other)
    TFHVD_SYMBOL("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void tfhvd_drop_exception(void* self) TFHVD_SYMBOL("_ZNSt15__exception_ptr13exception_ptrD1Ev");
TFHVD_HIDDEN void tfhvd_add_exception(void* self)
    TFHVD_SYMBOL("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
TFHVD_HIDDEN void tfhvd_release_exception(void* self)
    TFHVD_SYMBOL("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void tfhvd_add_exception(void* self) {
  void* counted_and_kept = nullptr;
  tfhvd_copy_exception(&counted_and_kept, self);
}
void tfhvd_release_exception(void* self) { tfhvd_drop_exception(self); }

// std::stringstream's constructor without arguments, since libstdc++ 9.
void tfhvd_open_stringstream(void* self, int mode)
    TFHVD_SYMBOL("_ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
TFHVD_HIDDEN void tfhvd_make_stringstream(void* self)
    TFHVD_SYMBOL("_ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void tfhvd_make_stringstream(void* self) { tfhvd_open_stringstream(self, kInAndOut); }

}  // extern "C"
