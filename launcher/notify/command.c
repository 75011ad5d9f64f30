/* command: delivers notifications by a command of the user. */
#include "launcher/child.h"
#include "launcher/notify/outlet.h"
#include "plan/spec/job/notify.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static const double limit_s = 10;

struct command {
	char **words;
	bool slack;
};

static void close_command(void *way)
{
	struct command *c = way;
	free(c->words);
	free(c);
}

/* A command that fails has perhaps done its work, so it runs once. */
static int deliver(void *way, const json_t *message, int cut, double *again_s, struct err *e)
{
	struct command *c = way;
	struct buf output = BUF_INIT;
	char *body = notify_body(message, c->slack);
	const struct child_command child = {
		.argv = c->words,
		.input = body,
		.out = open("/dev/null", O_WRONLY | O_CLOEXEC),
		.cut = &cut,
		.absent = "; notify.command is the path of a program, or its name in PATH",
	};
	*again_s = -1;
	int rc = !body || child.out < 0 ? err_set(e, ERR_NOMEM, "no memory for a notification")
					: launcher_child_run(&child, limit_s, &output, e);
	if (child.out >= 0)
		close(child.out);
	free(body);
	buf_fini(&output);
	return rc;
}

int notify_command_open(const char *command, bool slack, struct outlet_way *out, struct err *e)
{
	struct command *c = calloc(1, sizeof *c);
	if (!c || !(c->words = job_notify_words(command))) {
		free(c);
		return err_set(e, ERR_NOMEM, "no memory to send notifications");
	}
	c->slack = slack;
	*out = (struct outlet_way){ .deliver = deliver, .close = close_command, .way = c };
	return 0;
}
