/*
 * fiber — stacks to switch between, without a system call.
 *
 * One thread of the host uses the fibers at a time. A fiber is resumed once for each piece of work, and
 * suspends itself in the middle or at the end of it.
 */
#ifndef MUSTER_TESTS_GPU_FIBER_H
#define MUSTER_TESTS_GPU_FIBER_H

#include <stddef.h>

struct fiber;

/* A fiber that runs `body` when it is first resumed. body must not return. Without memory the process
 * ends. */
struct fiber *fiber_new(void (*body)(void));
/* Switches from the thread's own stack to f, until f calls fiber_suspend. */
void fiber_resume(struct fiber *f);
/* Switches back to where f was resumed. */
void fiber_suspend(struct fiber *f);
/* The lowest address of its stack, and the stack's size. */
const char *fiber_stack(const struct fiber *f, size_t *bytes);
/* Whether the address is in the guard page of a fiber's stack. */
int fiber_overflowed(const void *at);

#endif
