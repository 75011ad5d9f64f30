/*
 * lanes — how a message is dealt over the byte streams of a link.
 *
 * A link has one lane or more, each an ordered stream of its own. The frame of a message goes over
 * lane 0, and so does its data when it is short. A longer one is cut into stripes, and stripe i
 * goes over lane i % lanes. Both ends know the sizes, so nothing on the lanes says which stripe it
 * is: the bytes of a lane are the shares of the messages, one after the other.
 */
#ifndef MUSTER_LIBCOMM_P2P_LANES_H
#define MUSTER_LIBCOMM_P2P_LANES_H

#include <stddef.h>
#include <sys/uio.h>

enum { LANE_STRIPE = 128 << 10, LANE_WHOLE = 256 << 10 /* longer messages are dealt */ };

/* Bytes of a message's data that go over this lane. */
size_t comm_lane_share(size_t bytes, int lanes, int lane);

/* The next pieces of data[bytes] on this lane, whose share has gone through up to `done`; at most
 * `most` pieces. Returns how many. */
int comm_lane_pieces(char *data, size_t bytes, int lanes, int lane, size_t done, struct iovec *v,
		     int most);

#endif
