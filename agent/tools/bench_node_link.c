#include "agent/tools/bench_node.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

enum { CHUNK = 512 << 10 };

/* Sends chunks for so many seconds. The first byte of the last one is 1. The receiver's answer ends
 * the time, so that data in the buffers of the kernel does not count. */
static int send_chunks(struct comm *c, char *data, double seconds, double *rate, struct err *e)
{
	double begin = clock_s(), sent = 0;
	char answer;
	for (data[0] = 0; !data[0]; sent += CHUNK) {
		data[0] = clock_s() - begin >= seconds;
		if (comm_send(c, data, CHUNK, COMM_U8, 1 - comm_rank(c), e))
			return -1;
	}
	if (comm_recv(c, &answer, 1, COMM_U8, 1 - comm_rank(c), e))
		return -1;
	*rate = sent / (clock_s() - begin);
	return 0;
}

static int receive_chunks(struct comm *c, char *data, double *rate, struct err *e)
{
	double begin = clock_s(), got = 0;
	const char answer = 1;
	for (data[0] = 0; !data[0]; got += CHUNK)
		if (comm_recv(c, data, CHUNK, COMM_U8, 1 - comm_rank(c), e))
			return -1;
	*rate = got / (clock_s() - begin);
	return comm_send(c, &answer, 1, COMM_U8, 1 - comm_rank(c), e);
}

static int measure(struct comm *c, char *data, double seconds, double *sending, double *receiving,
		   struct err *e)
{
	for (int from = 0; from < 2; from++)
		if (comm_barrier(c, e) ||
		    (from == comm_rank(c) ? send_chunks(c, data, seconds / 2, sending, e)
					  : receive_chunks(c, data, receiving, e)))
			return -1;
	return 0;
}

int bench_node_link(const struct bench_node *b, const struct comm_bootstrap *pair, double seconds,
		    struct node_figures *out, struct err *e)
{
	double sending = 0, receiving = 0;
	struct comm *world;
	char *data = calloc(1, CHUNK);
	int rc = data ? comm_open(pair, &b->comm, &world, e)
		      : err_set(e, ERR_NOMEM, "no memory to measure a link");
	if (!rc) {
		rc = measure(world, data, seconds, &sending, &receiving, e);
		comm_close(world);
	}
	free(data);
	bench_node_add(out, BURN_IN_SEND, 0, rc ? 0 : sending);
	bench_node_add(out, BURN_IN_RECEIVE, 0, rc ? 0 : receiving);
	return rc;
}
