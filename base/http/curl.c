#include "base/http/curl.h"

#include "base/library.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

static struct curl_library lib;

static const struct library_symbol symbols[] = {
	LIBRARY_NEEDS(curl_library, global_init, "curl_global_init"),
	LIBRARY_NEEDS(curl_library, init, "curl_easy_init"),
	LIBRARY_NEEDS(curl_library, setopt, "curl_easy_setopt"),
	LIBRARY_NEEDS(curl_library, perform, "curl_easy_perform"),
	LIBRARY_NEEDS(curl_library, getinfo, "curl_easy_getinfo"),
	LIBRARY_NEEDS(curl_library, cleanup, "curl_easy_cleanup"),
	LIBRARY_NEEDS(curl_library, strerror, "curl_easy_strerror"),
	LIBRARY_NEEDS(curl_library, append, "curl_slist_append"),
	LIBRARY_NEEDS(curl_library, free_all, "curl_slist_free_all"),
	LIBRARY_NEEDS(curl_library, multi_init, "curl_multi_init"),
	LIBRARY_NEEDS(curl_library, multi_cleanup, "curl_multi_cleanup"),
	LIBRARY_NEEDS(curl_library, multi_add, "curl_multi_add_handle"),
	LIBRARY_NEEDS(curl_library, multi_remove, "curl_multi_remove_handle"),
	LIBRARY_NEEDS(curl_library, multi_perform, "curl_multi_perform"),
	LIBRARY_NEEDS(curl_library, multi_poll, "curl_multi_poll"),
	LIBRARY_NEEDS(curl_library, multi_info, "curl_multi_info_read"),
	LIBRARY_NEEDS(curl_library, multi_setopt, "curl_multi_setopt"),
};

static int start(struct err *e)
{
	return lib.global_init(CURL_GLOBAL_DEFAULT)
		       ? err_set(e, ERR_UNSUPPORTED,
				 "libcurl cannot be used on this host (curl_global_init failed); "
				 "install the package libcurl4 anew")
		       : 0;
}

static struct library curl = {
	.name = "libcurl",
	.files = { "libcurl.so.4", "libcurl-gnutls.so.4" },
	.code = ERR_UNSUPPORTED,
	.remedy = "install the package libcurl4",
	.symbols = symbols,
	.count = sizeof symbols / sizeof *symbols,
	.table = &lib,
	.start = start,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

const struct curl_library *http_curl(struct err *e)
{
	return library_load(&curl, e) ? NULL : &lib;
}
