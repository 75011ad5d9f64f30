#include "launcher/cli/output.h"

#include "base/file.h"
#include "launcher/status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int command_print_json_text(const char *text, size_t n)
{
	int rc = 0;
	size_t from = 0;
	for (size_t i = 0; i < n; i++) {
		const unsigned char *s = (const unsigned char *)text + i;
		size_t control = *s == 0x7f                                               ? 1
				 : *s == 0xc2 && i + 1 < n && s[1] >= 0x80 && s[1] < 0xa0 ? 2
											  : 0;
		if (!control)
			continue;
		rc |= fwrite(text + from, 1, i - from, stdout) != i - from;
		rc |= printf("\\u%04X", s[control - 1]) < 0;
		from = i + control;
		i = from - 1;
	}
	rc |= fwrite(text + from, 1, n - from, stdout) != n - from;
	rc |= putchar('\n') == EOF;
	return rc ? -1 : 0;
}

int command_print_json(json_t *o)
{
	char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
	int rc = text ? command_print_json_text(text, strlen(text)) : -1;
	free(text);
	json_decref(o);
	return rc;
}

/* A pipe or a socket that nobody reads any more. */
static bool reader_gone(void)
{
	struct pollfd p = { STDOUT_FILENO, POLLOUT, 0 };
	return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}

int command_output_end(int status)
{
	bool failed = ferror(stdout);
	errno = 0;
	failed |= fflush(stdout) != 0;
	int error = errno;
	if (!failed)
		return status;
	if (reader_gone())
		return STATUS_PIPE;
	fprintf(stderr, "muster: cannot write to standard output%s%s\n", error ? ": " : "",
		error ? strerror(error) : "");
	return STATUS_FAILED;
}

int command_output_json(json_t *o, int status)
{
	return command_output_end(command_print_json(o) ? STATUS_FAILED : status);
}

int command_write_drawing(struct buf *text, const char *path, struct err *e)
{
	int rc = buf_failed(text)
			 ? err_set(e, ERR_NOMEM,
				   "%s: no memory for the drawing; close other programs", path)
			 : file_publish(path, text->data, text->len, e);
	buf_fini(text);
	return rc;
}
