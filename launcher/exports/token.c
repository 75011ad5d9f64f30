#include "launcher/exports/token.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REMEDY \
	"a token is at least 16 printable characters without blanks, such as `openssl rand -hex " \
	"32` " \
	"prints"

/* Copies the token without the blanks around it. */
static int take(const char *text, const char *from, char out[EXPORTS_TOKEN], struct err *e)
{
	const char *begin = text + strspn(text, " \t\r\n");
	size_t n = strcspn(begin, " \t\r\n");
	bool whole = !begin[n + strspn(begin + n, " \t\r\n")] && n < EXPORTS_TOKEN;
	for (size_t i = 0; i < n; i++)
		whole &= begin[i] > ' ' && begin[i] < 0x7f;
	if (!whole || n < EXPORTS_TOKEN_LEAST)
		return err_set(e, ERR_USAGE, "%.200s holds no token that can be used; " REMEDY,
			       from);
	memcpy(out, begin, n);
	out[n] = '\0';
	return 0;
}

int exports_token_read(const char *file, char out[EXPORTS_TOKEN], struct err *e)
{
	const char *set = getenv(EXPORTS_TOKEN_VARIABLE);
	char text[2 * EXPORTS_TOKEN];
	int rc = 0;
	*out = '\0';
	if (*file)
		rc = file_read_secret(file, text, sizeof text, e) || take(text, file, out, e) ? -1
											      : 0;
	else if (set && *set)
		rc = take(set, "the variable " EXPORTS_TOKEN_VARIABLE, out, e);
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
