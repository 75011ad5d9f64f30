/*
 * fiber — stacks to switch between, without a system call.
 *
 * One thread of the system uses the fibers at a time. A fiber runs `fiber_entry`'s loop: it is
 * resumed once for each piece of work, and suspends itself in the middle or at the end of it.
 */
#ifndef MUSTER_TESTS_GPU_FIBER_H
#define MUSTER_TESTS_GPU_FIBER_H

#include <stddef.h>

struct fiber;

/* A fiber that runs `body` when it is first resumed; body must not return. Ends the process when
 * there is no memory. */
struct fiber *fiber_new(void (*body)(void));
/* From the thread's own stack into f, until f calls fiber_suspend. */
void fiber_resume(struct fiber *f);
/* Back to where f was resumed. */
void fiber_suspend(struct fiber *f);
/* Its stack's lowest address, and how large it is. */
const char *fiber_stack(const struct fiber *f, size_t *bytes);
/* Whether the address lies in the page that no stack of a fiber may grow into. */
int fiber_overflowed(const void *at);

#endif
