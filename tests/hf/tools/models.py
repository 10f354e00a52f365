"""Tiny models with random weights, the rows that a tool is calibrated with, and a tokenizer; runs inside a tool's environment."""
import torch
import transformers

from cases import LAYERS, TOP_K

HIDDEN, WIDTH, EXPERTS, VOCABULARY = 256, 128, 8, 256
COMMON = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": VOCABULARY, "max_position_embeddings": 256}
CLASSES = {  # model: class, what its config says beside COMMON
    "qwen3": ("Qwen3Moe", {"head_dim": 64, "intermediate_size": 512, "moe_intermediate_size": WIDTH, "num_experts": EXPERTS,
                           "num_experts_per_tok": TOP_K, "norm_topk_prob": True}),
    "mixtral": ("Mixtral", {"intermediate_size": WIDTH, "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K}),
    "gptoss": ("GptOss", {"head_dim": 64, "intermediate_size": WIDTH, "num_local_experts": EXPERTS,
                          "num_experts_per_tok": TOP_K, "layer_types": ["sliding_attention", "full_attention"]}),
}


def save_plain(kind, folder):
    """The model in bf16 as its class is saved, with a tokenizer."""
    name, members = CLASSES[kind]
    torch.manual_seed(1)
    model = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**COMMON, **members))
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "experts" in parameter_name and "bias" in parameter_name:
                parameter.normal_(0, 0.5)
            elif "experts" in parameter_name and parameter.dim() >= 2:  # outputs of order 1
                parameter.normal_(0, 1.3 / (HIDDEN if "gate" in parameter_name or "up" in parameter_name else WIDTH) ** 0.5)
    model.save_pretrained(folder)
    save_tokenizer(folder)


def save_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"word{i}": i for i in range(3, VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
                                         pad_token="</s>").save_pretrained(folder)


def load(folder, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **options).eval()


def calibration(batches=2, rows=4, tokens=48):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(3, VOCABULARY, (rows, tokens), generator=generator) for _ in range(batches)]


def run(model):
    """A tool's calibration loop."""
    with torch.no_grad():
        for ids in calibration():
            model(ids)
