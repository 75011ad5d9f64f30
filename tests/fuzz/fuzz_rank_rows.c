/* Any JSON as a row of the message node_progress: it is refused with a reason, or what it says is in range. */
#include "base/rank_rows.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(const struct err *e)
{
	if (e->code != ERR_PROTO || !*e->text)
		abort();
}

static void check_progress(const json_t *row)
{
	struct msg_progress m;
	struct err e = ERR_INIT;
	int rank;
	if (msg_progress_row_read(row, &rank, &m, &e)) {
		check_refusal(&e);
		return;
	}
	if (rank < 0 || m.step < -1 || m.count < 0 || m.active < 0 || m.done < 0 ||
	    !(m.own_s >= 0 && m.delay_s >= 0 && m.stalled_s >= 0))
		abort();
	json_t *again = msg_progress_row(rank, &m);
	if (!again)
		abort();
	json_decref(again);
}

static void check_times(const json_t *row)
{
	struct msg_times m;
	struct err e = ERR_INIT;
	int rank;
	if (msg_times_row_read(row, &rank, &m, &e))
		check_refusal(&e);
	else if (rank < 0 || m.step < 0 || m.peak_bytes < 0 || !json_is_array(m.us))
		abort();
}

static void check_report(const json_t *row)
{
	struct err e = ERR_INIT;
	enum msg_type type;
	const json_t *body;
	int rank;
	if (msg_report_row_read(row, &rank, &type, &body, &e))
		check_refusal(&e);
	else if (rank < 0 || msg_report_index(type) < 0 || !json_is_object(body))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *row = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
	if (!row)
		return 0;
	check_progress(row);
	check_times(row);
	check_report(row);
	json_decref(row);
	return 0;
}
