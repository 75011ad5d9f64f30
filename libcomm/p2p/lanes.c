#include "libcomm/p2p/lanes.h"

#include <stdbool.h>

/* A short message travels whole, on lane 0. */
static bool is_striped(size_t bytes, int lanes)
{
	return lanes > 1 && bytes > LANE_WHOLE;
}

size_t comm_lane_share(size_t bytes, int lanes, int lane)
{
	if (!is_striped(bytes, lanes))
		return lane == 0 ? bytes : 0;
	size_t whole = bytes / LANE_STRIPE, rounds = whole / (size_t)lanes,
	       last = whole % (size_t)lanes;
	size_t share = rounds * LANE_STRIPE;
	if ((size_t)lane < last)
		return share + LANE_STRIPE;
	return (size_t)lane == last ? share + bytes % LANE_STRIPE : share;
}

int comm_lane_pieces(char *data, size_t bytes, int lanes, int lane, size_t done, struct iovec *v,
		     int most)
{
	size_t share = comm_lane_share(bytes, lanes, lane);
	if (!is_striped(bytes, lanes)) {
		if (done < share)
			v[0] = (struct iovec){ data + done, share - done };
		return done < share;
	}
	int n = 0;
	while (done < share && n < most) {
		size_t stripe = done / LANE_STRIPE * (size_t)lanes + (size_t)lane,
		       skip = done % LANE_STRIPE;
		size_t len = LANE_STRIPE - skip;
		if (len > share - done)
			len = share - done;
		v[n++] = (struct iovec){ data + stripe * LANE_STRIPE + skip, len };
		done += len;
	}
	return n;
}
