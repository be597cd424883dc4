// The only place that asks for the version of Python. Whole functions.
#pragma once

#include <Python.h>

namespace tfhvd {
namespace compat {

// Returns the type of the exception that has left a call of this thread and is not caught yet;
// null: there is none. The state's own thread may call it without the interpreter's lock, because
// no other thread changes this field.
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
