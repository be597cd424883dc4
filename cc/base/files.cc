#include "cc/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cc/base/fd.h"

namespace tfhvd {

bool ReadFile(const std::string& path, std::string* text) {
  text->clear();
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  char part[4096];
  while (true) {
    const ssize_t got = read(fd.get(), part, sizeof part);
    if (got == 0) return true;
    if (got > 0) text->append(part, static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) return false;
  }
}

bool WriteFile(const std::string& path, const std::string& text, WriteMode mode) {
  const int how = mode == WriteMode::kAppend ? O_APPEND : O_TRUNC;
  const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666));
  if (!fd.valid()) return false;
  for (size_t written = 0; written < text.size();) {
    const ssize_t put = write(fd.get(), text.data() + written, text.size() - written);
    if (put > 0) written += static_cast<size_t>(put);
    if (put < 0 && errno != EINTR) return false;
  }
  return true;
}

}  // namespace tfhvd
