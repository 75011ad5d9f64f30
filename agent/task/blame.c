#include "agent/task/blame.h"

#include <stddef.h>
#include <string.h>

enum { LINES = 12 }; /* that count, from the end */

/* What PyTorch (NCCL, Gloo and its store), JAX and MPI print when the other end of a connection is
 * gone. */
static const char *const phrases[] = {
	"Connection reset by peer",   "Connection closed by peer",
	"Connection refused",         "Broken pipe",
	"remote process exited",      "Socket closed",
	"recvValue failed",           "sendBytes failed",
	"peer process died",          "Another task died",
	"The tasks have crashed",     "failed to connect to all addresses",
	"coordination service agent", "lost connection",
};

/* Where the last LINES lines begin. */
static const char *last_lines(const char *text)
{
	const char *at = text + strlen(text);
	for (int n = 0; at > text; at--)
		if (at[-1] == '\n' && n++ == LINES)
			break;
	return at;
}

bool task_blames_peer(const char *text)
{
	const char *end = last_lines(text);
	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
		if (strstr(end, phrases[i]))
			return true;
	return false;
}
