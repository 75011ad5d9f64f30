#include "agent/tools/step_file.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/human.h"
#include "base/json_member.h"

#include <math.h>
#include <stdlib.h>

enum { PHASES_MOST = 1 << 20, PHASE_COLUMNS = 6 };

#define TIME_MOST 1e17 /* microseconds: about 3,000 years */

void tool_step_name(char *out, size_t size, const char *text)
{
	size_t n = 0;
	for (; *text && n + 1 < size; text++)
		out[n++] = *text < ' ' || *text > '~' || *text == '"' || *text == '\\' ? '?'
										       : *text;
	out[n] = '\0';
}

static int read_time(const json_t *value, double *out)
{
	*out = json_number_value(value);
	return json_is_number(value) && *out >= 0 && *out < TIME_MOST ? 0 : -1;
}

static int read_index(const json_t *value, int *out)
{
	json_int_t i = json_integer_value(value);
	*out = (int)i;
	return json_is_integer(value) && i >= -1 && i < INT32_MAX ? 0 : -1;
}

/* [name, step, begin, end, chunk, micro] */
static int read_phase(const json_t *row, struct step_phase *out)
{
	const char *name = json_string_value(json_array_get(row, 0));
	const json_t *step = json_array_get(row, 1);
	if (!name || json_array_size(row) != PHASE_COLUMNS || !json_is_integer(step) ||
	    json_integer_value(step) < 0 || read_time(json_array_get(row, 2), &out->begin) ||
	    read_time(json_array_get(row, 3), &out->end) || out->end < out->begin ||
	    read_index(json_array_get(row, 4), &out->chunk) ||
	    read_index(json_array_get(row, 5), &out->micro))
		return -1;
	tool_step_name(out->name, sizeof out->name, name);
	out->step = json_integer_value(step);
	return 0;
}

static int read_phases(const json_t *list, struct step_file *f, struct err *e)
{
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n > PHASES_MOST)
		return err_set(e, ERR_CORRUPT, "\"phases\" is not a list of at most %d phases",
			       PHASES_MOST);
	f->phases = calloc(n + 1, sizeof *f->phases);
	if (!f->phases)
		return err_set(e, ERR_NOMEM, "no memory for %zu phases", n);
	for (size_t i = 0; i < n; i++, f->n++)
		if (read_phase(json_array_get(list, i), &f->phases[i]))
			return err_set(e, ERR_CORRUPT,
				       "phase %zu is not a list of a name, a step, "
				       "two times, a chunk and a micro-batch",
				       i);
	return 0;
}

static int read_document(const json_t *o, const char *name, struct step_file *f, struct err *e)
{
	int version;
	const char *place = json_string_value(json_object_get(o, "place"));
	if (json_member_int(o, "muster_steps", 1, 1, &version, e) ||
	    json_member_int(o, "rank", 0, TRACE_RANKS - 1, &f->rank, e) ||
	    json_member_int64(o, "first", 1, INT64_MAX, &f->first, e) ||
	    json_member_int64(o, "last", f->first, INT64_MAX, &f->last, e) ||
	    json_member_int64(o, "lost", 0, INT64_MAX, &f->lost, e) ||
	    read_phases(json_object_get(o, "phases"), f, e) ||
	    comm_trace_add_json(&f->comm, json_object_get(o, "comm"), "\"comm\"", e))
		return -1;
	tool_step_name(f->place, sizeof f->place, place ? place : "");
	if (f->rank >= f->comm.size || !f->comm.ranks[f->rank].there)
		return err_set(e, ERR_CORRUPT, "%s: the operations are not those of rank %d", name,
			       f->rank);
	return 0;
}

int tool_step_file_parse(const char *text, size_t bytes, const char *name, struct step_file *out,
			 struct err *e)
{
	json_error_t why;
	*out = (struct step_file){ 0 };
	json_t *o = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
	int rc = o ? read_document(o, name, out, e)
		   : err_set(e, ERR_CORRUPT, "line %d: %s", why.line, why.text);
	json_decref(o);
	if (!rc)
		return 0;
	tool_step_file_free(out);
	if (e)
		human_plain(e->text);
	return err_prefix(e, "%s is not a trace of steps", name);
}

int tool_step_file_read(const char *path, struct step_file *out, struct err *e)
{
	struct buf text = BUF_INIT;
	*out = (struct step_file){ 0 };
	int rc = file_slurp_own(path, TRACE_FILE, &text, e);
	if (!rc)
		rc = tool_step_file_parse(buf_str(&text), text.len, path, out, e);
	buf_fini(&text);
	return rc;
}

void tool_step_file_free(struct step_file *f)
{
	free(f->phases);
	comm_trace_fini(&f->comm);
	*f = (struct step_file){ 0 };
}
