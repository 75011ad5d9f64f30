/*
 * spill — zeroed memory backed by a file without a name.
 *
 * The system writes its pages to the file's disk when memory is short, and reads them back when
 * they are touched. The file is created in TMPDIR if that is set, otherwise in the given folder. It
 * is unlinked at once, so nothing is left behind however the process ends. Its disk space is
 * reserved when it is opened: a full disk causes an error then, and never a signal later.
 */
#ifndef MUSTER_BASE_SPILL_H
#define MUSTER_BASE_SPILL_H

#include "base/err.h"

#include <stddef.h>

/* `what` names the contents in errors. bytes 0 gives a pointer that may only be closed. */
int spill_open(const char *dir, const char *what, size_t bytes, void **out, struct err *e);
/* Takes NULL. */
void spill_close(void *memory, size_t bytes);

#endif
