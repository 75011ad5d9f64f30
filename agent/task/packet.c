#include "agent/task/packet.h"

#include "base/json_member.h"

#include <math.h>
#include <string.h>

/* clang-format off */
static const struct {
	const char *name;
	size_t at, has_at; /* in struct task_step */
} numbers[] = {
	{ "loss",      offsetof(struct task_step, loss),      offsetof(struct task_step, has_loss) },
	{ "lr",        offsetof(struct task_step, lr),        offsetof(struct task_step, has_lr) },
	{ "grad_norm", offsetof(struct task_step, grad_norm), offsetof(struct task_step, has_grad_norm) },
};

static const struct { const char *word; double value; } not_finite[] = {
	{ "nan", (double)NAN }, { "inf", (double)INFINITY }, { "-inf", -(double)INFINITY },
};

#define ROWS(name, FIELDS) \
	static const struct fields_row *name##_rows(void) \
	{ \
		typedef struct task_##name fields_struct; \
		static const struct fields_row rows[] = { FIELDS(FIELDS_ROW) FIELDS_END }; \
		return rows; \
	}
ROWS(hello, TASK_HELLO_FIELDS)
ROWS(step, TASK_STEP_FIELDS)
ROWS(checkpoint, TASK_CHECKPOINT_FIELDS)
/* clang-format on */

static int refuse(struct err *e, const char *what, const char *must)
{
	return err_set(e, ERR_PROTO, "%s must be %s", what, must);
}

static int read_hello(const json_t *object, struct task_packet *p, struct err *e)
{
	if (fields_read(hello_rows(), object, "hello", &p->hello, e))
		return -1;
	if (p->hello.version < 1)
		return refuse(e, "hello: version", "at least 1");
	if (p->hello.pid < 1)
		return refuse(e, "hello: pid", "at least 1");
	p->kind = TASK_PACKET_HELLO;
	return 0;
}

/* A number, or the word of one that JSON does not have. */
static bool read_number(const json_t *value, double *out)
{
	const char *word = json_string_value(value);
	for (size_t i = 0; word && i < sizeof not_finite / sizeof *not_finite; i++)
		if (!strcmp(word, not_finite[i].word)) {
			*out = not_finite[i].value;
			return true;
		}
	if (!json_is_number(value))
		return false;
	*out = json_number_value(value);
	return true;
}

static int read_numbers(const json_t *object, struct task_step *step, struct err *e)
{
	int rc = 0;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		const json_t *value = json_object_get(object, numbers[i].name);
		double *to = (double *)((char *)step + numbers[i].at);
		bool *has = (bool *)((char *)step + numbers[i].has_at);
		if (!value)
			continue;
		*has = read_number(value, to);
		if (!*has && !rc)
			rc = err_set(e, ERR_PROTO,
				     "step: \"%s\" must be a number, \"nan\", \"inf\" or \"-inf\"",
				     numbers[i].name);
	}
	return rc;
}

static int read_step(const json_t *object, struct task_packet *p, struct err *e)
{
	struct err why = ERR_INIT;
	int rc = fields_read(step_rows(), object, "step", &p->step, e);
	if (p->step.n < 1)
		return rc ? -1 : refuse(e, "step: n", "at least 1");
	p->kind = TASK_PACKET_STEP;
	if (read_numbers(object, &p->step, rc ? &why : e))
		rc = -1;
	return rc;
}

static int read_checkpoint(const json_t *object, struct task_packet *p, struct err *e)
{
	if (fields_read(checkpoint_rows(), object, "checkpoint", &p->checkpoint, e))
		return -1;
	const char *path = p->checkpoint.path;
	if (strlen(path) > TASK_PATH_MAX)
		return err_set(e, ERR_PROTO, "checkpoint: path has %zu bytes; %d are allowed",
			       strlen(path), TASK_PATH_MAX);
	if (*path != '/' && !strstr(path, "://"))
		return refuse(e, "checkpoint: path", "absolute, or a URL");
	p->kind = TASK_PACKET_CHECKPOINT;
	return 0;
}

static const struct {
	const char *member;
	int (*read)(const json_t *object, struct task_packet *p, struct err *e);
} kinds[] = {
	{ "hello", read_hello },
	{ "step", read_step },
	{ "checkpoint", read_checkpoint },
};

static int read_kind(struct task_packet *p, struct err *e)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		const json_t *object = json_object_get(p->root, kinds[i].member);
		if (!object)
			continue;
		if (!json_is_object(object))
			return refuse(e, kinds[i].member, "an object");
		return kinds[i].read(object, p, e);
	}
	return 0;
}

int task_packet_read(const void *data, size_t len, struct task_packet *out, struct err *e)
{
	struct err why = ERR_INIT;
	memset(out, 0, sizeof *out);
	if (len > TASK_PACKET_MAX)
		return err_set(e, ERR_PROTO, "a packet has %zu bytes; %d are allowed", len,
			       TASK_PACKET_MAX);
	if (json_member_object(data, len, &out->root, &why))
		return err_set(e, ERR_PROTO, "a packet: %s", why.text);
	return read_kind(out, e);
}

void task_packet_fini(struct task_packet *p)
{
	json_decref(p->root);
	memset(p, 0, sizeof *p);
}
