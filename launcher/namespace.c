#include "launcher/namespace.h"

#include "base/auth.h"

#include <stdio.h>

void launcher_namespace_new(char out[LAUNCHER_NAMESPACE], uint32_t generation)
{
	unsigned char random[AUTH_SECRET_BYTES];
	char hex[AUTH_SECRET_HEX];
	auth_secret_new(random);
	auth_secret_hex(random, hex);
	snprintf(out, LAUNCHER_NAMESPACE, "muster-%u-%.32s", generation, hex); /* 128 random bits */
}
