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
	json_t *row = msg_progress_row(p->head.rank, &m);
	if (!row || msg_progress_row_read(row, &rank, &read, NULL) || rank != p->head.rank ||
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
	json_t *row = msg_times_row(p->head.rank, &m);
	if (!row || msg_times_row_read(row, &rank, &read, NULL) || rank != p->head.rank ||
	    time_reported_read(read.us, us, NULL) || memcmp(us, p->us, sizeof us))
		abort();
	json_decref(row);
	json_decref(m.us);
}

static void check_report(const struct node_head *head, json_t *body)
{
	const json_t *read;
	enum msg_type type;
	int rank;
	json_t *row = msg_report_row(head->rank, msg_report_type((int)head->report), body);
	if (!row || msg_report_row_read(row, &rank, &type, &read, NULL) || rank != head->rank ||
	    msg_report_index(type) != head->report || read != body)
		abort();
	json_decref(row);
}

/* Packets of the right version are tried as well, with the bytes from their rank on, and as a report. */
static void check_packet(const void *data, size_t size)
{
	struct node_head head;
	struct node_packet p;
	if (!agent_node_head_read(data, size, &head))
		return;
	json_t *body = head.report == NODE_NO_REPORT ? NULL : agent_node_report_body(data, size);
	if (body)
		check_report(&head, body);
	json_decref(body);
	if (!agent_node_packet_read(data, size, &p))
		return;
	check_progress(&p);
	check_times(&p);
}

static void check_text(const uint8_t *data, size_t size)
{
	static struct node_report p;
	p.head = (struct node_head){ .version = MSG_VERSION, .report = size % REPORTS_COUNT };
	size_t n = size < sizeof p.text ? size : sizeof p.text;
	memcpy(p.text, data, n);
	check_packet(&p, sizeof p.head + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct node_packet p = { .head = { .version = MSG_VERSION } };
	size_t room = sizeof p - sizeof p.head.version;
	memcpy((char *)&p + sizeof p.head.version, data, size < room ? size : room);
	check_packet(data, size);
	p.head.report = NODE_NO_REPORT;
	check_packet(&p, sizeof p);
	check_text(data, size);
	return 0;
}
