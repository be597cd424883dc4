// The only place that asks which Python it is compiled for. Whole functions.
#pragma once

#include <Python.h>

namespace tfhvd {
namespace compat {

// The type of the exception that has left a call of this thread's and that nothing has caught yet;
// null: there is none. May be called by the state's own thread without the interpreter's lock:
// nobody else changes this field of a state.
#if PY_VERSION_HEX >= 0x030C0000
inline const PyTypeObject* UncaughtType(const PyThreadState& state) {
  return state.current_exception == nullptr ? nullptr : Py_TYPE(state.current_exception);
}
#else
inline const PyTypeObject* UncaughtType(const PyThreadState& state) {
  return reinterpret_cast<const PyTypeObject*>(state.curexc_type);
}
#endif

}  // namespace compat
}  // namespace tfhvd
