#include "base/http/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

static struct curl_library lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char unloadable[256]; /* error of the load */

static const struct {
	const char *name;
	void *to;
} symbols[] = {
	{ "curl_global_init", &lib.global_init },
	{ "curl_easy_init", &lib.init },
	{ "curl_easy_setopt", &lib.setopt },
	{ "curl_easy_perform", &lib.perform },
	{ "curl_easy_getinfo", &lib.getinfo },
	{ "curl_easy_cleanup", &lib.cleanup },
	{ "curl_easy_strerror", &lib.strerror },
	{ "curl_slist_append", &lib.append },
	{ "curl_slist_free_all", &lib.free_all },
	{ "curl_multi_init", &lib.multi_init },
	{ "curl_multi_cleanup", &lib.multi_cleanup },
	{ "curl_multi_add_handle", &lib.multi_add },
	{ "curl_multi_remove_handle", &lib.multi_remove },
	{ "curl_multi_perform", &lib.multi_perform },
	{ "curl_multi_poll", &lib.multi_poll },
	{ "curl_multi_info_read", &lib.multi_info },
	{ "curl_multi_setopt", &lib.multi_setopt },
};

static void load(void)
{
	static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
	void *so = NULL;
	for (size_t i = 0; !so && i < sizeof names / sizeof *names; i++)
		so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	const char *why = so ? NULL : dlerror();
	for (size_t i = 0; so && i < sizeof symbols / sizeof *symbols; i++) {
		void *at = dlsym(so, symbols[i].name);
		if (!at)
			why = symbols[i].name;
		memcpy(symbols[i].to, &at, sizeof at);
	}
	if (why)
		snprintf(unloadable, sizeof unloadable, "%s", why);
	else if (lib.global_init(CURL_GLOBAL_DEFAULT))
		snprintf(unloadable, sizeof unloadable, "curl_global_init failed");
}

const struct curl_library *http_curl(struct err *e)
{
	pthread_once(&once, load);
	if (!*unloadable)
		return &lib;
	err_set(e, ERR_UNSUPPORTED,
		"libcurl cannot be loaded on this host (%s); install the package libcurl4",
		unloadable);
	return NULL;
}
