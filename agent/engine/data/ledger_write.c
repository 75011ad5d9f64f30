/* Writes the lines of a ledger from their tables. */
#include "agent/engine/data/ledger_lines.h"
#include "base/clock.h"

#include <stdlib.h>

struct ledger_steps {
	LEDGER_STEPS_FIELDS(FIELDS_MEMBER)
};

static int add_line(struct buf *out, const struct fields_row *rows, const void *record,
		    struct err *e)
{
	json_t *line = fields_json(rows, record);
	char *text = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	if (text) {
		buf_puts(out, text);
		buf_puts(out, "\n");
	}
	json_decref(line);
	int rc = text && !buf_failed(out)
			 ? 0
			 : err_set(e, ERR_NOMEM, LEDGER_NAME ": no memory for a line");
	free(text);
	return rc;
}

int data_ledger_write_head(struct buf *out, int64_t generation, int64_t holds, struct err *e)
{
	typedef struct ledger_head fields_struct;
	static const struct fields_row rows[] = { LEDGER_HEAD_FIELDS(FIELDS_ROW) FIELDS_END };
	return add_line(out, rows,
			&(struct ledger_head){ .format = LEDGER_FORMAT,
					       .version = LEDGER_VERSION,
					       .time = clock_wall_s(),
					       .mono = clock_s(),
					       .generation = generation,
					       .has_holds = holds > 0,
					       .holds = holds },
			e);
}

int data_ledger_write_start(struct buf *out, struct ledger_start *start, struct err *e)
{
	typedef struct ledger_start fields_struct;
	static const struct fields_row rows[] = { LEDGER_START_FIELDS(FIELDS_ROW) FIELDS_END };
	start->event = "start";
	return add_line(out, rows, start, e);
}

int data_ledger_write_skip(struct buf *out, struct ledger_skip_line *skip, struct err *e)
{
	typedef struct ledger_skip_line fields_struct;
	static const struct fields_row rows[] = { LEDGER_SKIP_FIELDS(FIELDS_ROW) FIELDS_END };
	skip->event = "skip";
	return add_line(out, rows, skip, e);
}

/* A list that lacks an element because there was no memory is NULL. */
static json_t *replicas_json(const struct ledger_line *l)
{
	char hex[DIGEST_HEX];
	json_t *list = json_array();
	for (int i = 0; i < l->n && list; i++) {
		const struct ledger_replica *r = &l->replicas[i];
		ckpt_digest_hex(&r->digest, hex);
		if (json_array_append_new(list, json_pack("[I, I, s]", (json_int_t)r->offset,
							  (json_int_t)r->share, hex))) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

static json_t *pieces_json(const struct ledger_line *l)
{
	json_t *list = json_array();
	for (int i = 0; i < l->n_pieces && list; i++)
		if (json_array_append_new(list, json_pack("[I, I]", (json_int_t)l->pieces[i].steps,
							  (json_int_t)l->pieces[i].count))) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

int data_ledger_write_steps(struct buf *out, const struct ledger_line *l, struct err *e)
{
	typedef struct ledger_steps fields_struct;
	static const struct fields_row rows[] = { LEDGER_STEPS_FIELDS(FIELDS_ROW) FIELDS_END };
	struct ledger_steps s = { .event = "steps",
				  .generation = l->generation,
				  .from = l->from,
				  .to = l->to,
				  .first = l->first,
				  .global = l->global,
				  .has_pieces = l->pieces != NULL,
				  .pieces = l->pieces ? pieces_json(l) : NULL,
				  .replicas = replicas_json(l) };
	int rc = add_line(out, rows, &s, e);
	json_decref(s.pieces);
	json_decref(s.replicas);
	return rc;
}
