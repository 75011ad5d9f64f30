/* meminfo — what the kernel tells of the host's memory. */
#ifndef MUSTER_BASE_MEMINFO_H
#define MUSTER_BASE_MEMINFO_H

/* Bytes of a line of /proc/meminfo: "MemTotal", or "MemAvailable", what it could give without
 * ending anybody for it. 0: not told. */
double meminfo_read(const char *name);

#endif
