/*
 * oom — counts the processes that the kernel's OOM killer has ended, so that a killed agent can be
 * told from one that a person killed.
 *
 * The count is that of this process's cgroup, which its children share: memory.events (cgroup v2) or
 * memory.oom_control (v1), field oom_kill. A container may see its own cgroup as the root; then the
 * file there is read. Without one, the whole host's counter counts (/proc/vmstat). The kernel raises
 * the counter before it sends SIGKILL. Sources: Documentation/admin-guide/cgroup-v2.rst and
 * cgroup-v1/memory.rst in the kernel.
 */
#ifndef MUSTER_LAUNCHER_OOM_H
#define MUSTER_LAUNCHER_OOM_H

#include <stdint.h>

/* root: the folder that holds proc/ and sys/; NULL: "/". -1: no counter can be read. */
int64_t launcher_oom_kills(const char *root);

#endif
