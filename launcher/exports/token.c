#include "launcher/exports/token.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMEDY \
	"a token is at least 16 printable characters without blanks, such as `openssl rand -hex " \
	"32` " \
	"prints"

static int read_private(const char *path, char *out, size_t size, struct err *e)
{
	struct stat st;
	int fd = file_open(path, O_RDONLY, FILE_REGULAR, e);
	if (fd < 0)
		return -1;
	ssize_t n = -1;
	int rc = 0;
	if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 077))
		rc = err_set(
			e, ERR_DENIED,
			"%.200s: the token in it is yours alone, but the file is not: chown it "
			"to you, and chmod 600 it",
			path);
	else if ((n = read(fd, out, size - 1)) < 0)
		rc = err_errno(e, ERR_IO, "%.200s: cannot read", path);
	close(fd);
	out[n > 0 ? n : 0] = '\0';
	return rc;
}

/* Removes the blanks around the token. */
static int take(char *text, const char *from, struct err *e)
{
	char *begin = text + strspn(text, " \t\r\n");
	size_t n = strcspn(begin, " \t\r\n");
	bool whole = !begin[n + strspn(begin + n, " \t\r\n")] && n + 1 < EXPORTS_TOKEN;
	for (size_t i = 0; i < n; i++)
		whole &= begin[i] > ' ' && begin[i] < 0x7f;
	if (!whole || n < EXPORTS_TOKEN_LEAST)
		return err_set(e, ERR_USAGE, "%.200s holds no token that can be used; " REMEDY,
			       from);
	memmove(text, begin, n);
	text[n] = '\0';
	return 0;
}

int exports_token_read(const char *file, char out[EXPORTS_TOKEN], struct err *e)
{
	const char *set = getenv(EXPORTS_TOKEN_VARIABLE);
	char text[2 * EXPORTS_TOKEN] = "";
	int rc = 0;
	*out = '\0';
	if (*file)
		rc = read_private(file, text, sizeof text, e) || take(text, file, e) ? -1 : 0;
	else if (set && *set && snprintf(text, sizeof text, "%s", set) > 0)
		rc = take(text, "the variable " EXPORTS_TOKEN_VARIABLE, e);
	if (!rc)
		snprintf(out, EXPORTS_TOKEN, "%.*s", EXPORTS_TOKEN - 1, text);
	explicit_bzero(text, sizeof text);
	return rc;
}

bool exports_token_matches(const char *token, const char *header)
{
	static const char scheme[] = "Bearer ";
	if (!header || strncasecmp(header, scheme, sizeof scheme - 1))
		return false;
	header += sizeof scheme - 1;
	size_t n = strlen(token), m = strlen(header);
	volatile unsigned char differ = n != m;
	for (size_t i = 0; i < m; i++)
		differ = (unsigned char)(differ | (header[i] ^ token[n ? i % n : 0]));
	return !differ;
}
