#include "agent/node_packet.h"

#include "base/auth.h"
#include "base/rank_rows.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const int64_t most = INT64_C(1) << 62; /* as of a field COUNT (base/fields.h) */
static const double most_s = 1e9;

static struct node_head head_of(int rank, int report)
{
	return (struct node_head){ .version = MSG_VERSION, .rank = rank, .report = report };
}

bool agent_node_head_read(const void *data, size_t len, struct node_head *head)
{
	if (len < sizeof *head)
		return false;
	memcpy(head, data, sizeof *head);
	return head->version == MSG_VERSION && head->rank >= 0 && head->report >= NODE_NO_REPORT &&
	       head->report < REPORTS_COUNT;
}

/* --- reports -------------------------------------------------------------------------------- */

size_t agent_node_report_size(const json_t *body)
{
	return json_dumpb(body, NULL, 0, JSON_COMPACT);
}

size_t agent_node_report_fill(struct node_report *p, int rank, int report, const json_t *body)
{
	size_t n = json_dumpb(body, p->text, sizeof p->text, JSON_COMPACT);
	if (n == 0 || n > sizeof p->text)
		return 0;
	p->head = head_of(rank, report);
	return offsetof(struct node_report, text) + n;
}

json_t *agent_node_report_body(const void *data, size_t len)
{
	size_t before = offsetof(struct node_report, text);
	json_t *body = len > before && len <= sizeof(struct node_report)
			       ? json_loadb((const char *)data + before, len - before, 0, NULL)
			       : NULL;
	if (json_is_object(body))
		return body;
	json_decref(body);
	return NULL;
}

/* --- progress and times ------------------------------------------------------------------------ */

void agent_node_packet_fill(struct node_packet *p, int rank, const struct msg_progress *m,
			    const struct train_times *times)
{
	*p = (struct node_packet){ .head = head_of(rank, NODE_NO_REPORT),
				   .step = m->step,
				   .count = m->count,
				   .active = m->active,
				   .done = m->done,
				   .own_s = m->own_s,
				   .delay_s = m->delay_s,
				   .stalled_s = m->stalled_s };
	snprintf(p->phase, sizeof p->phase, "%s", m->phase);
	if (!times)
		return;
	p->has_times = 1;
	p->times_step = times->step;
	p->peak_bytes = times->peak_bytes;
	memcpy(p->us, times->us, sizeof p->us);
}

static bool is_count(int64_t v)
{
	return v >= 0 && v <= most;
}

static bool is_duration(double s)
{
	return s >= 0 && s <= most_s; /* false for NaN */
}

/* A text in ASCII, so that one rank cannot spoil the message of all. */
static bool is_phase(const char phase[NODE_PHASE])
{
	size_t len = strnlen(phase, NODE_PHASE);
	for (size_t i = 0; i < len; i++)
		if (phase[i] < ' ' || phase[i] > '~')
			return false;
	return len < NODE_PHASE;
}

static bool has_valid_times(const struct node_packet *p)
{
	return (p->has_times == 0 || p->has_times == 1) && is_count(p->times_step) &&
	       is_count(p->peak_bytes) && time_reported_valid(p->us);
}

bool agent_node_packet_read(const void *data, size_t len, struct node_packet *p)
{
	struct node_head head;
	if (len != sizeof *p || !agent_node_head_read(data, len, &head) ||
	    head.report != NODE_NO_REPORT)
		return false;
	memcpy(p, data, sizeof *p);
	return p->step >= -1 && p->step <= most && is_count(p->count) && is_count(p->active) &&
	       is_count(p->done) && is_duration(p->own_s) && is_duration(p->delay_s) &&
	       is_duration(p->stalled_s) && is_phase(p->phase) && has_valid_times(p);
}

void agent_node_packet_progress(const struct node_packet *p, struct msg_progress *m)
{
	*m = (struct msg_progress){ .step = p->step,
				    .phase = p->phase,
				    .count = p->count,
				    .active = p->active,
				    .done = p->done,
				    .own_s = p->own_s,
				    .delay_s = p->delay_s,
				    .stalled_s = p->stalled_s };
}

bool agent_node_packet_times(const struct node_packet *p, struct train_times *times)
{
	if (!p->has_times)
		return false;
	*times = (struct train_times){ .step = p->times_step, .peak_bytes = p->peak_bytes };
	memcpy(times->us, p->us, sizeof times->us);
	return true;
}

int agent_node_address(const struct msg_welcome *w, struct sockaddr_un *out, socklen_t *len,
		       struct err *e)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	char about[64], name[AUTH_SECRET_HEX];
	if (auth_secret_parse(w->group_secret, secret, e))
		return err_prefix(e, "message welcome: group_secret");
	snprintf(about, sizeof about, "the relay of rank %d's node", w->leader);
	auth_secret_name(secret, about, name);
	explicit_bzero(secret, sizeof secret);
	*out = (struct sockaddr_un){ .sun_family = AF_UNIX }; /* an abstract name begins with NUL */
	int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "muster-node-%s", name);
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return 0;
}
