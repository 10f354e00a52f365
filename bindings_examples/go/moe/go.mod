module libmoe/bindings/moe

go 1.19
