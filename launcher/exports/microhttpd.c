#include "launcher/exports/microhttpd.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct microhttpd lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char unloadable[256]; /* error of the load */

static const struct {
	const char *name;
	void *to;
} symbols[] = {
	{ "MHD_start_daemon", &lib.start },
	{ "MHD_stop_daemon", &lib.stop },
	{ "MHD_create_response_from_buffer", &lib.response },
	{ "MHD_add_response_header", &lib.add_header },
	{ "MHD_queue_response", &lib.queue },
	{ "MHD_destroy_response", &lib.destroy },
	{ "MHD_lookup_connection_value", &lib.lookup },
};

static void load(void)
{
	void *so = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
	const char *why = so ? NULL : dlerror();
	for (size_t i = 0; so && i < sizeof symbols / sizeof *symbols; i++) {
		void *at = dlsym(so, symbols[i].name);
		if (!at)
			why = symbols[i].name;
		memcpy(symbols[i].to, &at, sizeof at);
	}
	if (why)
		snprintf(unloadable, sizeof unloadable, "%s", why);
}

const struct microhttpd *exports_microhttpd(struct err *e)
{
	pthread_once(&once, load);
	if (!*unloadable)
		return &lib;
	err_set(e, ERR_UNSUPPORTED,
		"libmicrohttpd cannot be loaded on this host (%s); install the package "
		"libmicrohttpd12",
		unloadable);
	return NULL;
}
