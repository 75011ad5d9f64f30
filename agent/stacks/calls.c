#include "agent/stacks/calls.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* clang-format off */

#define ROW(name, role) { SYS_##name, #name, role }

/* The calls in which threads of a training process stay for long. */
static const struct {
	long number;
	const char *name;
	enum call_role role;
} calls[] = {
	ROW(read, CALL_FILE), ROW(write, CALL_FILE), ROW(readv, CALL_FILE), ROW(writev, CALL_FILE),
	ROW(pread64, CALL_FILE), ROW(pwrite64, CALL_FILE), ROW(preadv, CALL_FILE), ROW(pwritev, CALL_FILE),
	ROW(fsync, CALL_FILE), ROW(fdatasync, CALL_FILE), ROW(sync_file_range, CALL_FILE), ROW(syncfs, CALL_FILE),
	ROW(ftruncate, CALL_FILE), ROW(fallocate, CALL_FILE), ROW(flock, CALL_FILE), ROW(fcntl, CALL_FILE),
	ROW(ioctl, CALL_FILE), ROW(close, CALL_FILE), ROW(fstat, CALL_FILE), ROW(getdents64, CALL_FILE),
	ROW(sendfile, CALL_FILE), ROW(lseek, CALL_FILE),
	ROW(connect, CALL_FILE), ROW(accept, CALL_FILE), ROW(accept4, CALL_FILE), ROW(recvfrom, CALL_FILE),
	ROW(sendto, CALL_FILE), ROW(recvmsg, CALL_FILE), ROW(sendmsg, CALL_FILE),
	ROW(futex, CALL_WAIT), ROW(ppoll, CALL_WAIT), ROW(pselect6, CALL_WAIT), ROW(epoll_pwait, CALL_WAIT),
	ROW(nanosleep, CALL_SLEEP), ROW(clock_nanosleep, CALL_SLEEP), ROW(wait4, CALL_WAIT), ROW(waitid, CALL_WAIT),
	ROW(rt_sigtimedwait, CALL_WAIT), ROW(restart_syscall, CALL_WAIT), ROW(sched_yield, CALL_WAIT),
#ifdef SYS_poll
	ROW(poll, CALL_WAIT), ROW(select, CALL_WAIT), ROW(epoll_wait, CALL_WAIT), ROW(pause, CALL_WAIT),
	ROW(open, CALL_OTHER), ROW(rename, CALL_OTHER), ROW(unlink, CALL_OTHER), ROW(mkdir, CALL_OTHER), ROW(stat, CALL_OTHER),
#endif
	ROW(openat, CALL_OTHER), ROW(renameat2, CALL_OTHER), ROW(renameat, CALL_OTHER), ROW(unlinkat, CALL_OTHER), ROW(mkdirat, CALL_OTHER),
	ROW(statx, CALL_OTHER), ROW(sync, CALL_OTHER), ROW(mmap, CALL_OTHER), ROW(munmap, CALL_OTHER),
	ROW(madvise, CALL_OTHER), ROW(mprotect, CALL_OTHER), ROW(msync, CALL_OTHER), ROW(exit_group, CALL_OTHER),
};

#undef ROW

/* clang-format on */

/* select() without descriptors is a sleep. */
static bool is_select(long number)
{
#ifdef SYS_select
	if (number == SYS_select)
		return true;
#endif
	return number == SYS_pselect6;
}

void stacks_call_parse(const char *text, struct call *out)
{
	char *end;
	*out = (struct call){ .fd = -1 };
	long number = strtol(text, &end, 10);
	if (end == text || number < 0 || strncmp(end, " 0x", 3))
		return;
	unsigned long first = strtoul(end + 1, NULL, 16);
	out->role = CALL_OTHER;
	snprintf(out->name, sizeof out->name, "system call %d", (int)(number % 10000000));
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (calls[i].number == number) {
			out->role = calls[i].role;
			snprintf(out->name, sizeof out->name, "%s", calls[i].name);
		}
	if (is_select(number) && !first)
		out->role = CALL_SLEEP;
	if (out->role == CALL_FILE)
		out->fd = first <= INT32_MAX ? (int)first : -1;
}

bool stacks_link_waits(const char *link)
{
	return !strncmp(link, "socket:", 7) || !strncmp(link, "anon_inode:", 11);
}
