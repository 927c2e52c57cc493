"""temporary stand-in until branch cmd is merged"""


def zoo_file(name: str, datapath: str | None = None) -> str:
    """The path of a model file."""
    if name.startswith("zoo:"):
        from parlai.core.build_data import modelzoo_path
        from parlai.core.params import ParlaiParser

        p = ParlaiParser(add_parlai_args=False, add_model_args=False)
        p.add_parlai_data_path()
        import polyagents.parlai_agents.compat as c

        c.apply()
        return modelzoo_path(
            datapath or p.parse_args([])["datapath"],
            {
                "zoo:reddit": "zoo:pretrained_transformers/poly_model_huge_reddit/model",
                "zoo:wikito": "zoo:pretrained_transformers/poly_model_huge_wikito/model",
            }.get(name, name),
        )
    return name
