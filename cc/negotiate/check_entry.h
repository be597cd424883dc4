// CheckEntry: finds the errors of an entry that only this rank can find. Returns an error if no
// other rank waits for the entry; otherwise the others must learn of the error, and it is stored in
// the request.
#pragma once

#include "cc/base/status.h"
#include "cc/flow/entry.h"
#include "cc/flow/process_set_table.h"

namespace tfhvd {

Status CheckEntry(const ProcessSetTable& sets, int rank, Entry* entry);

}  // namespace tfhvd
