// See highwayhash.h beside it.
#pragma once
