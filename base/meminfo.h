/* meminfo — the host's memory, from /proc/meminfo. */
#ifndef MUSTER_BASE_MEMINFO_H
#define MUSTER_BASE_MEMINFO_H

/* Bytes of the line `name`, such as "MemTotal" or "MemAvailable". 0: there is no such line. */
double meminfo_read(const char *name);

#endif
