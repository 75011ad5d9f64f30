/* futex — sleep on a word of shared memory, also across processes. */
#ifndef MUSTER_LIBCOMM_SHM_FUTEX_H
#define MUSTER_LIBCOMM_SHM_FUTEX_H

#include <linux/futex.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while *word is value, at most ns nanoseconds. May return early. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns)
{
	struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static inline void futex_wake_all(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
