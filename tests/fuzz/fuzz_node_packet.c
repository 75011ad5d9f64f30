/* Any bytes that a process sends to the relay of a node: they are refused, or the relay can hand on what they
 * say, and the supervisor takes it. */
#include "agent/node_packet.h"
#include "base/rank_rows.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_progress(const struct node_packet *p)
{
	struct msg_progress m, read;
	int rank;
	agent_node_packet_progress(p, &m);
	json_t *row = msg_progress_row(p->rank, &m);
	if (!row || msg_progress_row_read(row, &rank, &read, NULL) || rank != p->rank ||
	    read.step != p->step || read.count != p->count || strcmp(read.phase, p->phase))
		abort();
	json_decref(row);
}

static void check_times(const struct node_packet *p)
{
	struct train_times times;
	struct msg_times read;
	int64_t us[TIME_REPORTED];
	int rank;
	if (!agent_node_packet_times(p, &times))
		return;
	struct msg_times m = { .step = times.step, .us = time_reported_json(times.us) };
	json_t *row = msg_times_row(p->rank, &m);
	if (!row || msg_times_row_read(row, &rank, &read, NULL) || rank != p->rank ||
	    time_reported_read(read.us, us, NULL) || memcmp(us, p->us, sizeof us))
		abort();
	json_decref(row);
	json_decref(m.us);
}

/* A packet of the right version is tried as well, with the bytes from its rank on. */
static void check_packet(const void *data, size_t size)
{
	struct node_packet p;
	if (!agent_node_packet_read(data, size, &p))
		return;
	check_progress(&p);
	check_times(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct node_packet p = { .version = MSG_VERSION };
	size_t room = sizeof p - sizeof p.version;
	memcpy((char *)&p + sizeof p.version, data, size < room ? size : room);
	check_packet(data, size);
	check_packet(&p, sizeof p);
	return 0;
}
