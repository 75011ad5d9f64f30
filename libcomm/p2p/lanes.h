/*
 * lanes — how a message is divided among the byte streams of an endpoint.
 *
 * An endpoint has one or more lanes; each is an ordered stream. The frame of a message uses lane 0,
 * and so does its data if it is short. Longer data is cut into stripes; stripe i uses lane i %
 * lanes. Both ends know the sizes, so the lanes carry no stripe numbers: the bytes of a lane are
 * its shares of the messages, one after the other.
 */
#ifndef MUSTER_LIBCOMM_P2P_LANES_H
#define MUSTER_LIBCOMM_P2P_LANES_H

#include <stddef.h>
#include <sys/uio.h>

enum { LANE_STRIPE = 128 << 10, LANE_WHOLE = 256 << 10 /* longer messages are divided */ };

/* Bytes of a message's data that use this lane. */
size_t comm_lane_share(size_t bytes, int lanes, int lane);

/* The next pieces of data[bytes] on this lane, of whose share `done` bytes are through; at most
 * `most` pieces. Returns how many. */
int comm_lane_pieces(char *data, size_t bytes, int lanes, int lane, size_t done, struct iovec *v,
		     int most);

#endif
