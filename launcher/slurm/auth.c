#include "base/agent_env.h"
#include "base/munge.h"
#include "launcher/child.h"
#include "launcher/slurm/setting.h"
#include "launcher/slurm/slurm.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCONTROL_TIMEOUT 10.0

/* AuthInfo is a list such as "socket=/run/munge/2,ttl=60". */
static void parse_socket(const char *info, char *out, size_t size)
{
	static const char name[] = "socket=";
	out[0] = '\0';
	for (const char *at = info; *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at, name, sizeof name - 1))
			snprintf(out, size, "%.*s", (int)strcspn(at + sizeof name - 1, ","),
				 at + sizeof name - 1);
}

void slurm_auth(char word[MUNGE_WORD], struct err *warning)
{
	char *argv[] = { "scontrol", "show", "config", NULL }, type[64] = "", info[512] = "",
	     socket[AUTH_SOCKET] = "";
	const struct child_command c = { .argv = argv, .out = -1 };
	const char *wanted = getenv(AGENT_ENV_AUTH);
	struct buf config = BUF_INIT;
	struct voucher munge;
	strcpy(word, "secret");
	if (wanted && !strcmp(wanted, "secret"))
		return;
	if (!launcher_child_run(&c, SCONTROL_TIMEOUT, &config, NULL)) {
		slurm_setting(buf_str(&config), "AuthType", type, sizeof type);
		slurm_setting(buf_str(&config), "AuthInfo", info, sizeof info);
	}
	buf_fini(&config);
	if (*type && strcmp(type, "auth/munge"))
		return;
	parse_socket(info, socket, sizeof socket);
	munge_word(socket, word);
	if (munge_parse(word, &munge, warning) == 1 && !munge_try(&munge, warning))
		return;
	strcpy(word, "secret");
	err_prefix(warning,
		   "no MUNGE credentials, so only the secret protects the control channel");
}
