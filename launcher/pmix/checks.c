#include "launcher/pmix/checks.h"

#include "base/auth.h"
#include "launcher/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum { WORDS = 48, OWN = 4, WORD = 512 };

int local_check_nodes(uv_loop_t *loop, const struct check_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	const char *argv[] = { r->program, "doctor", "--node", r->needs, NULL };
	const struct child_command c = { .argv = (char *const *)(uintptr_t)argv,
					 .out = -1,
					 .tied = true };
	return launcher_child_watch(loop, &c, ended, arg, out, e);
}

/* This process's environment after the words of its own, which precede equal names. */
static char **make_environment(char own[OWN][WORD])
{
	size_t n = 0;
	while (environ[n])
		n++;
	char **env = calloc(n + OWN + 1, sizeof *env);
	for (int i = 0; env && i < OWN; i++)
		env[i] = own[i];
	if (env)
		memcpy(env + OWN, environ, n * sizeof *env);
	return env;
}

int local_burn_in(uv_loop_t *loop, const struct burn_in_request *r,
		  void (*ended)(void *arg, int status, const char *output), void *arg,
		  struct child **out, struct err *e)
{
	const char *argv[WORDS] = { r->agent, "bench", "node" };
	char own[OWN][WORD];
	for (int i = 0; r->words[i] && i < WORDS - 4; i++)
		argv[3 + i] = r->words[i];
	snprintf(own[0], WORD, AGENT_ENV_ADDRESS "=%s", r->address);
	snprintf(own[1], WORD, AGENT_ENV_SECRET "=%s", r->secret);
	snprintf(own[2], WORD, AGENT_ENV_AUTH "=%s", r->auth);
	snprintf(own[3], WORD, "OMP_WAIT_POLICY=passive");
	char **env = make_environment(own);
	const struct child_command c = {
		.argv = (char *const *)(uintptr_t)argv, .env = env, .out = -1, .tied = true
	};
	int rc = env ? launcher_child_watch(loop, &c, ended, arg, out, e)
		     : err_set(e, ERR_NOMEM, "no memory for the environment of the burn-in");
	free(env);
	explicit_bzero(own, sizeof own);
	return rc;
}
