/*
 * fake_device — a comm_device over host memory that does everything late, for tests.
 *
 * Copies, events and operations are queued on streams. They are executed a few at a time, from a
 * randomly chosen stream, whenever somebody asks whether an event is done. A copy to the host first
 * overwrites its target with garbage. fake_misuse counts errors that a real device would ignore or
 * crash at. Its library "fakes" adds 64-bit integers, and gathers and broadcasts through memory
 * that the ranks share. It starts operations late, and it can be made to fail.
 */
#ifndef MUSTER_TESTS_FAKE_DEVICE_H
#define MUSTER_TESTS_FAKE_DEVICE_H

#include "libcomm/device/device.h"

extern const struct comm_device fake_device;

enum fake_fault { FAKE_SOUND, FAKE_NO_LIBRARY, FAKE_LIBRARY_FAILS };

/* Call before the ranks are forked. one_device: all ranks share one device. */
void fake_set_up(bool one_device);
/* Call in a rank: the fault applies from now on. */
void fake_set_fault(enum fake_fault fault);

void *fake_memory(size_t bytes);
void fake_release(void *memory);
/* Queues a copy between any two buffers, like a kernel of the caller. */
void fake_kernel(void *to, const void *from, size_t bytes, void *stream);
/* Runs queued operations until the stream is empty. */
void fake_finish(void *stream);

/* Returns the number of misuses so far, each with a line on stderr, plus the number of objects that
 * are still open. */
int fake_misuse(void);
int fake_open_things(void);

#endif
