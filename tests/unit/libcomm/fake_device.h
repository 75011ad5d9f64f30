/*
 * fake_device — a comm_device over host memory that does everything late, for tests.
 *
 * Copies, events and operations queue up on streams and are carried out a few at a time, of a
 * stream chosen by dice, when somebody asks whether an event is done. A copy to the host first
 * spoils its target. What a real device would forgive or crash at is counted: fake_misuse. Its
 * library "fakes" adds 64-bit integers, gathers and broadcasts through memory that the ranks share,
 * begins late, and can be made to fail.
 */
#ifndef MUSTER_TESTS_FAKE_DEVICE_H
#define MUSTER_TESTS_FAKE_DEVICE_H

#include "libcomm/device/device.h"

extern const struct comm_device fake_device;

enum fake_fault { FAKE_SOUND, FAKE_NO_LIBRARY, FAKE_LIBRARY_FAILS };

/* Call before the ranks are forked. one_device: all ranks share one device. */
void fake_set_up(bool one_device);
/* In a rank: the fault applies from now on. */
void fake_set_fault(enum fake_fault fault);

void *fake_memory(size_t bytes);
void fake_release(void *memory);
/* Queues a copy between any two buffers, like a kernel of the caller. */
void fake_kernel(void *to, const void *from, size_t bytes, void *stream);
/* Runs queued operations until the stream is empty. */
void fake_finish(void *stream);

/* The number of misuses so far, each with a line on stderr, and of objects that are still open. */
int fake_misuse(void);
int fake_open_things(void);

#endif
